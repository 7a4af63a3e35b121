# completion of atomic for bash: atomic completion bash > ~/.local/share/bash-completion/completions/atomic
_atomic() {
    local line="${COMP_LINE:0:COMP_POINT}" current before candidate
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current="${words[${#words[@]}-1]}"
    # Readline starts a new word at : and =, and wants only the text after them.
    before="${current%"${current##*[:=]}"}"
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        COMPREPLY+=("${candidate#"$before"}")
    done < <(command atomic complete "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *: ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _atomic atomic
