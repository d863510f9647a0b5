/* driver.h - what the CUDA driver on this machine can do, asked in a child process.
 *
 * cuInit of a broken installation may crash or hang, and leaves threads behind, so egpu itself
 * never calls it.
 */
#ifndef EGPU_CLI_DRIVER_H
#define EGPU_CLI_DRIVER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"

enum { DRIVER_MAX_DEVICES = 16 };

struct driver_device {
	char name[128];
	int32_t cc; /* 90 for 9.0 */
	int32_t sms;
};

struct driver_info {
	bool loads;          /* dlopen worked */
	char path[PATH_MAX]; /* of the loaded library, links resolved */
	bool has_init;       /* cuInit was called */
	int32_t init;        /* what it returned; 0: good */
	int32_t version;     /* 13000 for CUDA 13.0; 0: not known */
	int32_t n_devices;
	struct driver_device devices[DRIVER_MAX_DEVICES];
	char error[256]; /* why it is not usable, "" when it is */
};

/* Loads `library` (a path, or "libcuda.so.1" for the search path) and asks it. Always fills *out.
 */
void driver_probe(const char *library, struct driver_info *out);
static inline bool driver_usable(const struct driver_info *i)
{
	return i->loads && i->has_init && i->init == 0 && i->n_devices > 0;
}

/* Newest PTX ISA (90 for 9.0) that a driver of this version compiles; 0: not known. */
unsigned driver_ptx_isa(int32_t version);

/* Runs fn in a child with limit_s seconds; its bytes at *out come back. False when it crashed, hung
 * or said no: error says which. */
bool in_child(bool (*fn)(void *arg, void *out), void *arg, void *out, size_t size, unsigned limit_s,
	char error[256]);

#endif
