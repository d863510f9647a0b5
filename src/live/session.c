/* session.c - what --live adds to a session before its command starts. */
#include <errno.h>
#include <string.h>

#include "live/program.h"

static const char map_name[] = "egpu_live";

bool live_find_map(struct session *s, uint32_t *id)
{
	const struct session_file *f = session_data(s);

	for (*id = 0; *id < EBPF_MAX_MAPS; ++*id)
		if (f->maps[*id].used && f->maps[*id].live)
			return true;
	return false;
}

static int add_map(struct session *s, const struct live_choice *tier, uint32_t *id, struct diag *d)
{
	const struct ebpf_map def = {
		.name = map_name, .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = LIVE_VALUE_BYTES, .max_entries = 1
	};
	int err = session_add_map(s, &def, id, d);

	if (!err) {
		session_data(s)->maps[*id].internal = 1;
		session_data(s)->maps[*id].owner = 0;
		session_data(s)->maps[*id].live = tier->tier;
		session_data(s)->maps[*id].live_why = tier->why ? session_add_text(s, tier->why) : 0;
	}
	return err;
}

/* The guard of a point, where this pattern has it. */
static bool has_guard(struct session *s, enum live_point point, const char *pattern)
{
	const struct session_file *f = session_data(s);

	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &f->links[i];
		if (l->state == SESSION_LINK_ATTACHED && !l->owner && !l->live && l->prog < SESSION_MAX_PROGS &&
			!strcmp(f->progs[l->prog].name, live_guard_name(point)) && !strcmp(l->pattern, pattern))
			return true;
	}
	return false;
}

static int add_guard(struct session *s, enum live_point point, uint32_t map, const char *pattern, struct diag *d)
{
	struct arena *arena = arena_new();
	struct ebpf_fragment guard;
	struct buf text = { 0 };
	uint32_t prog, link;
	int err = arena ? live_guard(arena, point, map, &guard, d) : diag_set(d, ENOMEM, "out of memory");

	if (!err) {
		ebpf_fragment_print(&guard, &text);
		err = text.failed ? diag_set(d, ENOMEM, "out of memory")
				  : session_add_prog(s, text.data, text.len, guard.name, guard.point, false, &prog, d);
	}
	if (!err)
		err = session_add_link(s, prog, guard.point, false, pattern, &link, d);
	if (!err)
		session_data(s)->progs[prog].owner = session_data(s)->links[link].owner = 0;
	buf_free(&text);
	arena_free(arena);
	return err;
}

int live_parse_points(const char *list, uint32_t *points, struct diag *d)
{
	static const char *const names[LIVE_POINTS] = { "entry", "exit", "mem", "loop" };

	*points = 0;
	for (const char *s = list; *s;) {
		size_t n = strcspn(s, ",");
		int p = 0;
		while (p < LIVE_POINTS && (strlen(names[p]) != n || strncmp(s, names[p], n)))
			p++;
		if (p == LIVE_POINTS)
			return diag_set(d, EINVAL, "--live=%s: \"%.*s\" is no point with guards; use entry, exit, loop, mem", list, (int)n, s);
		*points |= 1u << p;
		s += n + (s[n] == ',');
	}
	/* Those before accesses do not look at the bell: a multiprocessor that is full would not hear of what comes and goes. */
	if (*points >> LIVE_MEM & 1)
		*points |= 1u << LIVE_LOOP;
	return *points ? 0 : diag_set(d, EINVAL, "--live=: name points: entry, exit, loop, mem");
}

int live_add_guards(struct session *s, uint32_t points, const char *pattern, const struct live_choice *tier, struct diag *d)
{
	uint32_t map;
	int err = live_find_map(s, &map) ? 0 : add_map(s, tier, &map, d);

	for (int p = 0; p < LIVE_POINTS && !err; p++)
		if ((points >> p & 1) && !has_guard(s, p, pattern))
			err = add_guard(s, p, map, pattern, d);
	return err;
}
