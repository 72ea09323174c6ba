#!/bin/bash
# fetch_axe.sh: puts axe.min.js of axe-core into the directory $1, for check-ui.
#
# axe-core is licensed under MPL-2.0; it is read into the pages under test and is no part of attnd.
exec "$(dirname "$0")/../tools/fetch_npm.sh" "$1" axe-core@4.14.1 \
    FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ== axe.min.js
