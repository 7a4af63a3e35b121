"""Scripts of workers that do their worst to the user's project.

`$PROJECT` is the path of the user's checkout, `$ORIGIN` of the repository that it was
cloned from, `$HOME_OF_ATOMIC` of Atomic's own folder, `$VICTIM` the number of a process
outside, and `$WITNESS` a file that nothing may write.
"""

from __future__ import annotations

# Each runs after `START`, in a workspace.
START = "echo work > work.txt && git add work.txt && git commit -qm work"

WORST = {
    # git, in the worker's own repository
    "stash": "echo dirty > a.txt; echo new > new.txt; git stash -uq",
    "clean": "git clean -fdxq",
    "gc": "git reflog expire --expire=now --all; git gc -q --prune=now",
    "reset": "git reset -q --hard HEAD~1",
    "delete branches": "git checkout -q --detach; for one in $(git branch --format='%(refname:short)'); do"
    " git branch -qD $one; done; git tag -d v1; git update-ref -d refs/remotes/origin/main",
    "orphan": "git checkout -q --orphan empty; git rm -rqf .; git commit -q --allow-empty -m empty",
    "conflict left open": "git checkout -qb side HEAD~1; echo other > work.txt; git add .; git commit -qm other;"
    " git merge -q atomic/3f2a9c1e || git merge -q -",
    "replace": "git replace HEAD HEAD~1; git notes add -m note",
    "locks": "touch .git/index.lock .git/HEAD.lock .git/config.lock .git/refs/heads/main.lock",
    "broken repository": ": > .git/HEAD; rm .git/index; echo junk > .git/config",
    "no repository": "rm -rf .git",
    "damaged objects": "find .git/objects -type f | while read -r file; do chmod u+w $file; echo junk > $file; done",
    "alternates": 'echo "$PROJECT/.git/objects" > .git/objects/info/alternates; rm -rf .git/objects/??',
    "inner repositories": "git init -q inner; (cd inner; echo x > x; git add x; git commit -qm x);"
    " mkdir sub; echo junk > sub/.git",
    "submodule": 'git -c protocol.file.allow=always submodule --quiet add "$PROJECT" sub',
    "worktree": 'git worktree add -q ../evil; git -C "$PROJECT" worktree add -q ../evil-too',
    "programs in settings": 'printf "#!/bin/sh\\ntouch $WITNESS\\n" > evil; chmod +x evil; mkdir -p .git/hooks;'
    " for hook in post-checkout reference-transaction pre-commit post-index-change; do cp evil .git/hooks/$hook; done;"
    ' git config core.fsmonitor "$PWD/evil"; git config filter.evil.clean "$PWD/evil"; git config diff.external'
    ' "$PWD/evil"; git config core.pager "$PWD/evil"; echo "* filter=evil" > .gitattributes; rm -f "$WITNESS"',
    # the user's repository, by its path
    "push to the project": 'git push -qf "$PROJECT" HEAD:refs/heads/main HEAD:refs/heads/evil :refs/heads/feature',
    "push to the origin": "git push -qf origin HEAD:main; git push -q origin :feature; git push -q --mirror origin",
    "refs of the project": 'git --git-dir="$PROJECT/.git" update-ref refs/heads/main HEAD~1;'
    ' git -C "$PROJECT" stash clear; git -C "$PROJECT" branch -qD feature; git -C "$PROJECT" reset -q --hard',
    "settings of the project": 'git -C "$PROJECT" config user.name Evil; echo junk >> "$PROJECT/.git/config"',
    "hooks of the project": 'mkdir -p "$PROJECT/.git/hooks"; echo "exit 1" > "$PROJECT/.git/hooks/pre-commit";'
    ' chmod +x "$PROJECT/.git/hooks/pre-commit"',
    # the user's files, by their path
    "write to the project": 'echo evil > "$PROJECT/a.txt"; echo evil > "$PROJECT/new.txt"; rm -f "$PROJECT/draft.txt"',
    "delete the project": 'rm -rf "$PROJECT" 2>/dev/null; rm -rf "$PROJECT"/* "$PROJECT"/.[a-z]*',
    "move the project": 'mv "$PROJECT" "$PROJECT.moved"; mv "$PROJECT/src" "$PROJECT/moved"',
    "modes of the project": 'chmod -R 777 "$PROJECT"; chown -R 1 "$PROJECT"',
    "times of the project": 'find "$PROJECT" -exec touch -h -d 1999-01-01 {} +',
    "symbolic links": 'ln -s "$PROJECT/a.txt" link; echo evil > link; ln -s "$PROJECT" way; echo evil > way/src/b.txt',
    "repository is a link": 'rm -rf .git; ln -s "$PROJECT/.git" .git; git commit -q --allow-empty -m evil;'
    " git stash -uq",
    "hard links": 'ln "$PROJECT/a.txt" hard; echo evil >> hard; ln a.txt other; echo more >> other',
    "home of Atomic": 'rm -rf "$HOME_OF_ATOMIC/workspaces"/* "$HOME_OF_ATOMIC/workspaces"',
    # the machine
    "daemon": 'setsid sh -c "while :; do echo late > $PROJECT/late.txt; sleep 0.05; done" > /dev/null 2>&1 &',
    "daemon without environment": 'setsid env -i PATH="$PATH" sh -c "while :; do echo late > $PROJECT/late.txt;'
    ' sleep 0.05; done" > /dev/null 2>&1 &',
    "unmount": 'umount -l "$PROJECT"; mount --bind /tmp "$PROJECT"; unshare -Urm umount -l "$PROJECT";'
    ' unshare -Urm sh -c "umount -l $PROJECT; echo evil > $PROJECT/a.txt"',
    "remount": 'mount -o remount,rw,bind "$PROJECT"; unshare -Urm sh -c "mount -o remount,rw,bind $PROJECT;'
    ' echo evil > $PROJECT/a.txt"; echo evil > "$PROJECT/a.txt"',
    "other roots": 'for one in /proc/[0-9]*; do echo evil > "$one/root$PROJECT/a.txt"; done',
    "kill": 'kill -KILL "$VICTIM"; python3 -c "import ctypes; ctypes.CDLL(None).ptrace(16, $VICTIM, 0, 0)"',
    # odd files
    "full": "dd if=/dev/zero of=big bs=1M count=48 status=none; mkdir many; cd many; seq 3000 | xargs touch",
    "odd names": "touch -- '-rf' 'a b' \"$(printf 'new\\nline')\" \"$(printf 'raw\\377')\" '\"quoted\"' ':(top)x' '*'"
    " 'back\\slash' \"$(printf '%0255d' 0)\"",
    "special files": "mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")';"
    " mknod device c 1 3",
    "no rights": "chmod 000 a.txt; chmod -R 000 src; chmod 500 .",
    "files and folders swapped": "rm -rf src; echo x > src; rm a.txt; mkdir a.txt; echo x > a.txt/x",
    "all ignored": "echo '*' > .gitignore; git rm -rq --cached .",
}

# These delete the worker's own files and commits, in a workspace of this kind.
DELETES_WORK = {"delete the project": "overlay", "home of Atomic": "clone"}
