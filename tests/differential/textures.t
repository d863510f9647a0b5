#!/bin/sh
# Textures and surfaces of softgpu against the recorded results of an H200 (docs/softgpu.md, "Differential tests").
textures=${EGPU_BUILD:-build}/tests/differential/textures
data=${EGPU_SOURCE:-.}/tests/differential/h200-textures.zst
if [ ! -r "$data" ]; then
	echo 1..1
	echo "ok 1 # skip no recorded results of textures"
	exit 0
fi
exec "$textures" --driver "${EGPU_BUILD:-build}/src/softgpu/libcuda.so.1" --check "$data" 2>/dev/null
