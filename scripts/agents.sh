#!/bin/sh
# Install the programs of programs.txt into .programs/, link them in .programs/bin/, and see that each one runs.
# `agents.sh more` installs those that are marked `more` into .programs/more/ and .programs/more/bin/.
set -eu
cd "$(dirname "$0")/.."

fail() {
    echo "make agents: $1" >&2
    exit 1
}

# What a failed command wrote, as part of one line; the whole of it is in the log.
reason() {
    sed -n 's/^npm error //p; s/^npm ERR! //p' "$log" | grep -Ev '^(code|errno|syscall|path) ' | head -n 1
}

set_name=${1:-}
root=.programs${set_name:+/$set_name}

# The pins as `name package version program` for this machine.
pins() {
    sed -e '/^#/d' -e '/^$/d' -e "s/OS-CPU/$os-$cpu/" programs.txt | awk -v set="$set_name" '$5 == set'
}

# A program may write into its home folder even for --version; none of that is the user's.
version_of() {
    env -i PATH="$PATH" HOME="$PWD/.programs/home" COPILOT_AUTO_UPDATE=false \
        COPILOT_CACHE_HOME="$PWD/.programs/cache/copilot" "$root/bin/$1" --version 2>>"$log"
}

case "$(uname -s)" in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) fail "there are no programs for $(uname -s); Linux and macOS are supported" ;;
esac
case "$(uname -m)" in
x86_64 | amd64) cpu=x64 ;;
aarch64 | arm64) cpu=arm64 ;;
*) fail "there are no programs for $(uname -m); x64 and arm64 are supported" ;;
esac
command -v npm >/dev/null || fail "npm was not found; install Node.js 20 or newer, which brings it"

log=.programs/install.log
mkdir -p .programs/home "$root/bin"
: >"$log"

packages=$(pins | awk '{ print $2 "@" $3 }')
# shellcheck disable=SC2086 # one word a package
npm install --prefix "$root" --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error \
    $packages >"$log" 2>&1 || fail "npm could not install $(echo $packages): $(reason) (see $log)"

pins | while read -r name package version program _; do
    ln -sfn "../node_modules/$package/$program" "$root/bin/$name"
    # The first start of Copilot also unpacks it: 235 MB, once.
    said=$(version_of "$name") || fail "$name $version was installed but does not run (see $log)"
    case "$said" in
    *"$version"*) echo "$name $version" ;;
    *) fail "$name should be $version but says: $said" ;;
    esac
done
