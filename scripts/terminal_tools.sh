#!/bin/sh
# What the tests of the screen need: tmux, and a Chromium. As root on Debian they are installed; elsewhere you are told how.
set -eu

missing=""
for program in tmux chromium; do
	command -v "$program" >/dev/null 2>&1 || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && [ -f /etc/debian_version ] && command -v apt-get >/dev/null 2>&1; then
	echo "installing$missing" >&2
	DEBIAN_FRONTEND=noninteractive apt-get -qq update >/dev/null
	# shellcheck disable=SC2086  # they are words
	DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $missing >/dev/null
	exit 0
fi

echo "The tests of the screen need:$missing. Install them, for example:" >&2
if command -v brew >/dev/null 2>&1; then
	echo "  brew install$missing" >&2
elif command -v dnf >/dev/null 2>&1; then
	echo "  sudo dnf install$missing" >&2
else
	echo "  sudo apt-get install$missing" >&2
fi
exit 1
