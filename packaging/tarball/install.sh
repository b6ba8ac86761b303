#!/bin/sh
# Installs umsg below a directory, /usr/local by default:  ./install.sh [PREFIX]
set -eu

cd "$(dirname "$0")"
prefix=${1:-/usr/local}
for directory in bin lib share; do
    (cd "$directory" && find . -type d -exec mkdir -p "$prefix/$directory/{}" \;)
    (cd "$directory" && find . -type f) | while read -r file; do
        # Copies the file under a new name and renames it, so that a running program keeps the old file.
        cp "$directory/$file" "$prefix/$directory/$file.new"
        mv "$prefix/$directory/$file.new" "$prefix/$directory/$file"
    done
done
echo "umsg is installed below $prefix. $prefix/bin/umsg --help explains it."
