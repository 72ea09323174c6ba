# rows.awk: rows of hidden states as JSON, [[..],[..]]: numbers of -1 to 1, the same for the same seed.
#
#   awk -v rows=N -v width=N -v seed=N -f tests/tools/rows.awk
BEGIN {
    srand(seed)
    for (r = 0; r < rows; r++) {
        printf "%s[", r ? "," : "["
        for (i = 0; i < width; i++)
            printf "%s%.4f", i ? "," : "", 2 * rand() - 1
        printf "]"
    }
    printf "]"
}
