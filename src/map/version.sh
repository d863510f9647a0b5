#!/bin/sh
# Prints the number of what loaders and agents share, as a C header: version.sh HEADER...
set -eu
printf '#define SESSION_VERSION 0x%su\n' "$(cat -- "$@" | sha256sum | cut -c1-8)"
