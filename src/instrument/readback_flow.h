/* readback_flow.h - what spliced code may do: one function or scope at a time. */
#ifndef EGPU_INSTRUMENT_READBACK_FLOW_H
#define EGPU_INSTRUMENT_READBACK_FLOW_H

#include "base/table.h"
#include "instrument/readback.h"

struct readback {
	const struct ptx_module *m; /* the variant */
	struct diag *d;
	struct arena *arena;
	int err;
	struct table *bodies;    /* text of a fragment that was found good -> itself */
	struct table *functions; /* name -> struct summary */
};

bool readback_fail(struct readback *r, uint32_t line, const char *what, const char *name);
bool readback_no_memory(struct readback *r);
bool readback_is_own_function(const struct ptx_func *f);
bool readback_is_splice(const struct readback *r, const struct ptx_stmt *s);
/* An array that takes what the lanes hand over, where a function begins. */
bool readback_is_lanes(const struct readback *r, const struct ptx_stmt *s);
/* The function of a fragment; its callees come before it. */
bool readback_function(struct readback *r, const struct ptx_func *f);
/* A splice, whose '{' is statement `open`. */
bool readback_scope(struct readback *r, const struct ptx_func *f, uint32_t open);

#endif
