# pretty.awk: JSON for human eyes.  One member per line; what is short stays on its line; a list of more
# than four numbers shows its first three and how many follow.  Not a parser: it trusts its input.

# "[0.125,-3,...]" with more than four numbers, shortened.
function shorten(list, numbers, n) {
    n = split(substr(list, 2, length(list) - 2), numbers, /,[ ]*/)
    if (n <= 4)
        return list
    return sprintf("[%s, %s, %s, ... %d more]", numbers[1], numbers[2], numbers[3], n - 3)
}

function newline(depth) {
    printf "\n%*s", 4 + 2 * depth, ""
}

{ text = text $0 }

END {
    printf "    "
    while (length(text) > 0) {
        if (match(text, /^"([^"\\]|\\.)*"/) || match(text, /^[^]["{},:]+/)) {
            printf "%s", substr(text, 1, RLENGTH)
        } else if (match(text, /^\[[-+0-9.eE, ]*\]/)) {
            printf "%s", shorten(substr(text, 1, RLENGTH))
        } else if (match(text, /^[[{][^][{}]*[]}]/) && RLENGTH < 60) {
            printf "%s", substr(text, 1, RLENGTH)
        } else {
            RLENGTH = 1
            mark = substr(text, 1, 1)
            if (mark == "}" || mark == "]")
                newline(--depth)
            printf "%s", mark == ":" ? ": " : mark
            if (mark == "{" || mark == "[")
                newline(++depth)
            if (mark == ",")
                newline(depth)
        }
        text = substr(text, RLENGTH + 1)
        sub(/^[ \t]+/, "", text)
    }
    printf "\n"
}
