# completion of atomic for fish: atomic completion fish > ~/.config/fish/completions/atomic.fish
function __atomic_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -q current[1]; or set current ''
    set -l names (command atomic complete $words[2..-1] $current 2>/dev/null)
    if set -q names[1]
        printf '%s\n' $names
    else
        __fish_complete_path $current
    end
end
complete -c atomic -f -a '(__atomic_complete)'
