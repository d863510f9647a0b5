#!/bin/sh
# One row E(NAME) for each enumerator and E_(NAME) for each numeric macro of egpu/cuda.h.
sed -n -e 's/^[[:space:]]\{1,\}\(CU_[A-Za-z0-9_]*\|CUDA_[A-Za-z0-9_]*\)\( = .*\)\{0,1\},\{0,1\}$/E(\1)/p' \
	-e 's/^#define \(CU_MEMHOST[A-Z_]*\|CU_LAUNCH_PARAM_[A-Z_]*_AS_INT\|CUDA_VERSION\) .*/E(\1)/p' "$1"
