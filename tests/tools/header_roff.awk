# header_roff.awk: prints public headers as the sections of a manual page, in mdoc.
#
#   awk -f tests/tools/header_roff.awk include/attn.h ...
#
# A comment that opens a line is text: its paragraphs are filled, lines indented by more than one
# blank stay as they are.  A comment /* ---- Title ---- */ is a heading.  All else, but for guards
# and includes, is a declaration and stays as it is.
function escaped(line) {
    gsub(/\\/, "\\e", line)
    gsub(/-/, "\\-", line)
    if (line ~ /^[.']/)
        line = "\\&" line
    return line
}
function put(line) {
    print line
    gap = line == ".Pp" || line ~ /^\.S[hs] /
}
function pause() {
    if (!gap)
        put(".Pp")
}
function verbatim(on) {
    if (on == literal)
        return
    literal = on
    if (on)
        put(".Bd -literal")
    else
        put(".Ed")
}
function text(line) {
    if (line ~ /^[[:space:]]*$/) {
        blank = 1
        return
    }
    if (line ~ /^  /) {
        if (literal && blank)
            print ""
        verbatim(1)
        print escaped(line)
    } else {
        verbatim(0)
        if (blank)
            pause()
        line = escaped(line)
        gsub(/\.[ ][ ]+/, ".\n", line) # roff sees the end of a sentence at the end of a line
        put(line)
    }
    blank = 0
}
function declaration(line) {
    verbatim(1)
    print escaped(line)
}
FNR == 1 {
    verbatim(0)
    name = FILENAME
    sub(/.*\//, "", name)
    print ".Sh <" name ">"
    gap = 1
}
/^#(ifndef|define) ATTN_([A-Z_]*_)?H$/ || /^#include/ || (/^#endif/ && !depth) { next }
/^#if / { depth++ }
/^#endif/ { depth-- }
/^\/\* ---- .* -+ \*\/$/ {
    verbatim(0)
    line = $0
    sub(/^\/\* -+ /, "", line)
    sub(/ -+ \*\/$/, "", line)
    put(".Ss " escaped(line))
    next
}
/^\/\* / && !inside {
    verbatim(0)
    pause()
    inside = 1
    blank = 0
    line = substr($0, 4)
    sub(/^attn[a-z_]*\.h: /, "", line)
    if (sub(/ \*\/$/, "", line))
        inside = 0
    text(line)
    next
}
inside {
    line = $0
    if (sub(/ \*\/$/, "", line))
        inside = 0
    sub(/^ \* ?/, "", line)
    if (line !~ /^ \*\/?$/)
        text(line)
    next
}
/^$/ {
    verbatim(0)
    next
}
{ declaration($0) }
END { verbatim(0) }
