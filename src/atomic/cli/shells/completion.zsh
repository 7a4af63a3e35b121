#compdef atomic
# completion of atomic for zsh: atomic completion zsh > "${fpath[1]}/_atomic"
_atomic() {
    local candidate text
    local -a names shown
    while IFS=$'\t' read -r candidate text; do
        names+=("$candidate")
        shown+=("$candidate  $text")
    done < <(command atomic complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#names} )); then
        compadd -l -d shown -a names
    else
        _files
    fi
}
if [[ $funcstack[1] == _atomic ]]; then
    _atomic "$@"
else
    compdef _atomic atomic
fi
