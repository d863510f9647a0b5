/* paths.h - where egpu's own files are: beside the running command.
 *
 * The same command runs from the build tree, an installed prefix and an unpacked tarball, so
 * everything is found from /proc/self/exe: PREFIX/bin/egpu with PREFIX/lib/egpu/ and
 * PREFIX/include, or build/src/cli/egpu (or build/egpu) with its neighbours in the build tree.
 */
#ifndef EGPU_CLI_PATHS_H
#define EGPU_CLI_PATHS_H

#include <limits.h>

#include "base/diag.h"

enum egpu_path {
	PATH_AGENT,   /* library preloaded into the target */
	PATH_SOFTGPU, /* libcuda.so.1 that runs PTX on the CPU */
	PATH_TOOLS,   /* directory of NAME.bpf.o */
	PATH_INCLUDE, /* directory that holds egpu/probe.bpf.h */
	PATH_COUNT,
};

/* Fills out with the absolute path. -ENOENT with d naming the places that were looked at. */
int path_find(enum egpu_path what, char out[PATH_MAX], struct diag *d);

#endif
