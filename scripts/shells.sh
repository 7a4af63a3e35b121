#!/bin/sh
# Put zsh and fish below .programs/shells/usr, from the packages of Debian, without installing them.
# Elsewhere, and where both are installed, nothing is done: the tests take the shells of the PATH.
set -eu
cd "$(dirname "$0")/.."

packages="zsh zsh-common fish fish-common libpcre2-32-0"
root=.programs/shells
missing=""
for shell in zsh fish; do
	command -v "$shell" >/dev/null 2>&1 || missing="$missing $shell"
done
[ -n "$missing" ] || exit 0
[ ! -e "$root/.setup" ] || exit 0
command -v dpkg-deb >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 || {
	echo "The tests of completion need:$missing. Install them with the package manager of your system." >&2
	exit 1
}

rm -rf "$root"
mkdir -p "$root/packages"
# shellcheck disable=SC2086 # one word a package
download() { (cd "$root/packages" && apt-get -qq download $packages); }
download 2>/dev/null || {
	[ "$(id -u)" != 0 ] || apt-get -qq update >/dev/null
	download || { echo "make shells: the packages of$missing could not be downloaded" >&2; exit 1; }
}
for package in "$root"/packages/*.deb; do
	dpkg-deb --extract "$package" "$root"
done
# Some systems have /bin apart from /usr/bin, so a package may use both.
cp -n "$root"/bin/* "$root/usr/bin/" 2>/dev/null || true
rm -r "$root/packages"
touch "$root/.setup"
