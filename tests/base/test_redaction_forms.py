"""Secrets as services, tools and encoders write them, and text that resembles one."""

from __future__ import annotations

import html
import json
import shlex
import subprocess
from base64 import b64encode, encodebytes
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from atomic.base.redaction import MARK, Redactor

A = "AbCdEf0123456789GhIjKl0123456789MnOpQr0123456789StUvWx0123456789YzAbCd0123456789"
H = "0123456789abcdef" * 10
ROOT = Path(__file__).parents[2]


def forms() -> dict[str, str]:
    """Return an example of a token of each service, by name."""
    return {
        "stripe": f"sk_live_{A[:24]}", "stripe restricted": f"rk_live_{A[:24]}", "stripe hook": f"whsec_{A[:32]}",
        "sendgrid": f"SG.{A[:22]}.{A[:43]}", "digitalocean": f"dop_v1_{H[:64]}", "shopify": f"shpat_{H[:32]}",
        "gitlab runner": f"glrt-{A[:20]}", "gitlab": f"glpat-{A[:20]}",
        "slack app": f"xapp-1-A0123ABC-0123456789-{H[:64]}",
        "slack hook": f"https://hooks.slack.com/services/T0123ABCD/B0123ABCD/{A[:24]}",
        "google oauth": f"ya29.{A[:60]}",
        "google client": f"GOCSPX-{A[:28]}", "vault": f"hvs.{A[:24]}", "databricks": f"dapi{H[:32]}",
        "linear": f"lin_api_{A[:40]}", "notion": f"ntn_{A[:46]}", "supabase": f"sbp_{H[:40]}",
        "grafana": f"glsa_{A[:32]}_{H[:8]}", "docker": f"dckr_pat_{A[:27]}", "age": f"AGE-SECRET-KEY-1{A[:58].upper()}",
        "xai": f"xai-{A[:80]}", "groq": f"gsk_{A[:52]}", "perplexity": f"pplx-{A[:48]}", "replicate": f"r8_{A[:37]}",
        "atlassian": f"ATATT3xFfGF0{A[:60]}", "telegram": f"123456789:AA{A[:33]}",
        "discord": f"MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{A[:27]}", "npm": f"npm_{A[:36]}", "pypi": f"pypi-{A[:40]}",
        "hugging face": f"hf_{A[:34]}", "github": f"ghp_{A[:36]}", "github fine": f"github_pat_{A[:40]}",
        "aws id": "AKIAIOSFODNN7EXAMPLE", "anthropic": f"sk-ant-api03-{A[:40]}", "openai": f"sk-proj-{A[:40]}",
        "pulumi": f"pul-{H[:40]}", "planetscale": f"pscale_tkn_{A[:43]}", "doppler": f"dp.pt.{A[:43]}",
        "square": f"sq0csp-{A[:43]}", "airtable": f"pat{A[:14]}.{H[:64]}", "sentry": f"sntryu_{H[:64]}",
        "new relic": f"NRAK-{A[:27].upper()}", "postman": f"PMAK-{H[:24]}-{H[:34]}", "figma": f"figd_{A[:40]}",
        "tailscale": f"tskey-auth-{A[:16]}-{A[:16]}", "heroku": f"HRKU-{A[:60]}", "brevo": f"xkeysib-{H[:64]}-{A[:16]}",
        "fly": f"fo1_{A[:43]}", "jwt": f"eyJ{A[:20]}.{A[:30]}.{A[:30]}",
    }  # fmt: skip


@pytest.mark.parametrize("around", ["{}", '{{"a": "{}"}}', "X={}\n", "see {}, please", r"\"{}\""])
def test_tokens_of_services_are_found(around: str) -> None:
    for service, secret in forms().items():
        redacted = Redactor().text(around.format(secret))
        assert MARK in redacted, service
        assert secret[-16:] not in redacted, service


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("DB_PASS=correct-horse", "correct-horse"),
        ("export MYSQL_PWD=correct-horse", "correct-horse"),
        ("passphrase=correct-h0rse-battery-staple", "correct-h0rse"),
        ('{"auths": {"registry": {"auth": "bWU6Y29ycmVjdC1ob3JzZQ=="}}}', "bWU6Y29y"),
        ("machine example.org login me password correct-horse", "correct-horse"),
        ("mysql --password correct-horse", "correct-horse"),
        ("deploy --token=abcd-efgh-ijkl", "abcd-efgh"),
        ("curl -s -u me:correct-horse https://example.org", "correct-horse"),
        ("Cookie: session=abcdefgh0123; theme=dark", "abcdefgh0123"),
        ("git clone https://abcdefgh0123456789abcd@example.org/x.git", "abcdefgh0123456789abcd"),
        ("DefaultEndpointsProtocol=https;AccountKey=abcdefgh0123456789+/==;x", "abcdefgh0123456789"),
        (json.dumps(json.dumps({"api_key": "correct-horse"})), "correct-horse"),
        (json.dumps(json.dumps(json.dumps({"password": "correct-horse"}))), "correct-horse"),
    ],
)
def test_passwords_in_files_commands_and_headers_are_found(text: str, secret: str) -> None:
    assert secret not in Redactor().text(text)


SECRET = "pä/ss&w'o\"rd<9>+x y=z"
ENCODED = {
    "json in json": json.dumps(json.dumps(SECRET)),
    "json with slashes": json.dumps(SECRET).replace("/", "\\/"),
    "address": quote(SECRET, safe=""),
    "address with slashes": quote(SECRET),
    "form": quote_plus(SECRET),
    "small escapes": quote(SECRET, safe="").replace("%2F", "%2f").replace("%C3", "%c3").replace("%A4", "%a4")
    .replace("%3C", "%3c").replace("%3E", "%3e").replace("%2B", "%2b").replace("%3D", "%3d"),
    "html": html.escape(SECRET),
    "shell": shlex.quote(SECRET),
    "python": repr(SECRET),
    "hex": SECRET.encode().hex(),
    "big hex": SECRET.encode().hex().upper(),
    "base64": b64encode(SECRET.encode()).decode(),
    "base64 with line ends": encodebytes(b"text before it, " * 6 + SECRET.encode() + b" and after it" * 9).decode(),
}  # fmt: skip


@pytest.mark.parametrize("text", ENCODED.values(), ids=ENCODED)
def test_a_known_secret_is_found_in_every_encoding(text: str) -> None:
    redacted = Redactor([SECRET]).text(f"it is {text} there")
    assert MARK in redacted
    for part in ("pä/ss", "rd<9", b64encode(SECRET.encode()[3:12]).decode()):
        assert part not in redacted


KEY = ["MIIEpAIBAAKCAQEA" + "x9Y8" * 12 for _ in range(6)]


@pytest.mark.parametrize("end", ["\n", "\\n", "\r\n"])
def test_a_private_key_that_is_cut_is_found(end: str) -> None:
    begin = "-----BEGIN OPENSSH PRIVATE KEY-----"
    last = "-----END OPENSSH PRIVATE KEY-----"
    for lines in (
        [begin, *KEY],
        [*KEY, "abcd==", last],
        ["$ cat id_rsa", begin, *KEY[:3], "done with it."],
        [KEY[0], last],
    ):
        redacted = Redactor().text(end.join(lines))
        assert KEY[0] not in redacted
        assert redacted.count(MARK) == sum(line in KEY or line == "abcd==" for line in lines)
    assert "done with it." in Redactor().text(end.join([begin, *KEY, "done with it."]))


def test_a_key_of_putty_is_found() -> None:
    text = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\nAAAAC3Nz\nPrivate-Lines: 2\n"
    redacted = Redactor().text(f"{text}{KEY[0]}\n{KEY[1]}\nPrivate-MAC: 0\n")
    assert KEY[0] not in redacted
    assert "AAAAC3Nz" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/home/me/code/project-one",
        "OLDPWD=/home/somebody/place",
        "commit 94a429cf0f0c8b7e0e0d7a6d5c4b3a2918273645",
        "sha256:" + H[:64],
        "sha512-" + b64encode(bytes(range(64))).decode(),
        "uuid 0f9b2c1e-1111-4222-8333-444455556666",
        "use --password PASSWORD or --token <token> or --api-key $KEY",
        "passed = 12345678 tests, bypass=disabled_for_now",
        "password authentication failed for the user",
        "git@github.com:owner/repo.git and ssh://git@example.org/x",
        "author: somebody@example.org, path=/usr/lib/python3/x",
        "def login(user, password): ...",
        "secret_sauce_of_the_house_recipe",
        "task-1-and-more pat-na-x key-value-store glass-half-full",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_this_repositorys_own_code_and_docs_have_few_findings() -> None:
    words = ["git", "ls-files", "src", "docs", "README.md"]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [ROOT / name for name in listed if name.endswith((".py", ".md"))]
    assert len(files) > 300
    found = [file.name for file in files if Redactor().spans(file.read_text("utf-8"), code=True)]
    assert len(found) <= 3, found


def test_secrets_are_redacted_across_any_number_of_pieces() -> None:
    pieces = [piece for _ in range(3000) for piece in ("TOKEN=aaaa", "aaaaaaaa\n")]
    redacted = Redactor().pieces(pieces)
    assert redacted[:4] == [f"TOKEN={MARK}", "\n", f"TOKEN={MARK}", "\n"]
    assert len(redacted) == len(pieces)
