#!/bin/bash
# fetch_prettier.sh: puts Prettier, which formats the page's scripts, into the directory $1, for style.
#
# Prettier is licensed under MIT; it reads and writes sources and is no part of attnd.
exec "$(dirname "$0")/fetch_npm.sh" "$1" prettier@3.6.2 \
    I7AIg5boAr5R0FFtJ6rCfD+LFsWHp81dolrFD8S79U9tb8Az2nGrJncnMSnys+bpQJfRUzqs9hnA81OAA3hCuQ==
