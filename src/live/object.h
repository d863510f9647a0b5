/* object.h - a live program as a session file holds it. */
#ifndef EGPU_LIVE_OBJECT_H
#define EGPU_LIVE_OBJECT_H

#include <stddef.h>

#include "base/diag.h"
#include "live/live.h"

/* Checks the bytes of prog-ID.live; the parts point into them. -EINVAL when they are damaged. */
int live_object_parse(const void *data, size_t size, const struct live_object **object, const struct live_reloc **relocs,
	const uint64_t **insns, struct diag *d);

/* Sets the address of a relocation's map, to which its offset is added, in the two words of the program's ld_imm64. */
void live_put_address(uint64_t *insns, const struct live_reloc *r, uint64_t map);

/* The text behind the object, and what remains of *size; NULL: there is none. */
const char *live_object_text(const void *data, size_t *size, size_t *text_bytes);

/* The interpreter: for guards at accesses, and for the others. */
#define LIVE_RUN "__egpu_live_run"
#define LIVE_AT "__egpu_live_at"
/* What the guards call: these call the interpreter, or machine code. */
#define LIVE_CALL_RUN "__egpu_live_call_run"
#define LIVE_CALL_AT "__egpu_live_call_at"
/* PTX of these functions; NULL: another name. Only these very texts are trusted in a variant. */
const char *live_function_text(const char *name);

#endif
