/* program.h - the host's half of --live: guards as fragments, and checked programs as data for the interpreter. */
#ifndef EGPU_LIVE_PROGRAM_H
#define EGPU_LIVE_PROGRAM_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/diag.h"
#include "bpf/fragment.h"
#include "live/live.h"
#include "map/session.h"
#include "verifier/verifier.h"

/* The guard of a point, as a fragment like any other. map: id of "egpu_live" in the session. Allocates from arena; -ENOMEM. */
int live_guard(struct arena *arena, enum live_point point, uint32_t map, struct ebpf_fragment *out, struct diag *d);
/* What its program is called. */
const char *live_guard_name(enum live_point point);
/* The point whose guards programs of a section can use; -EOPNOTSUPP, with what can be written instead. */
int live_point_of(enum ebpf_point point, enum live_point *out, uint32_t *ops, struct diag *d);
/* A verified program as prog-ID.live. updates: what its translation has made atomic (struct ebpf_fragment). -EOPNOTSUPP for what the
 * interpreter does not do: kernel parameters, perturbing helpers, some of these updates, calls nested deeper than LIVE_FRAMES; -E2BIG,
 * -ENOMEM. */
int live_encode(const struct ebpf_program *p, const struct verifier_result *v, const struct ebpf_update *updates, uint32_t n_updates,
	enum ebpf_point point, bool warp, struct buf *out, struct diag *d);

/* Puts a program as text behind its object: what the native tier compiles. -ENOMEM. */
int live_add_text(struct buf *object, const struct buf *text);

#define LIVE_POINTS_DEFAULT "entry,exit,loop"
/* "entry,loop" as a bit per enum live_point. -EINVAL with the names there are. */
int live_parse_points(const char *list, uint32_t *points, struct diag *d);
/* How programs run there, and why not as machine code. Of a session that has guards it stays as it is. */
struct live_choice {
	enum live_tier tier;
	const char *why;
};
/* Guards at these points of the kernels that match, and the map that their words are in. They are nobody's: they stay when the
 * loader that added them goes, until all of the session is detached. Those that are there already are not added again. */
int live_add_guards(struct session *s, uint32_t points, const char *pattern, const struct live_choice *tier, struct diag *d);
/* The session's map "egpu_live"; false: it was not started with --live. */
bool live_find_map(struct session *s, uint32_t *id);

#endif
