/* store.c - a result as bytes and back, so that it can be kept beside the machine code it belongs to.
 *
 * Numbers are 32 bits, as the machine has them: the bytes stay on the machine. A string is its length and
 * its bytes; one that is the same as in the site before is only said to be so.
 */
#include <errno.h>
#include <string.h>

#include "instrument/instrument.h"

/* A site takes at least SITE_WORDS numbers. */
enum { SITE_WORDS = 13, NO_STRING = -1, SAME_STRING = -2, MAX_PARAMS = 1 << 16, FLAG_LAUNCH = 1, FLAG_LAST_BIT = 2, FLAG_PARTS = 1 };

_Static_assert(sizeof(struct instrument_site) == 80 && sizeof(struct instrument_result) == 88,
	"a field has come or gone: write and read it here too, and compare it in tests/unit/instrument_store.c");

/* -- writing -- */

static void put(struct buf *b, uint32_t v)
{
	buf_add(b, &v, sizeof(v));
}

static void put_string(struct buf *b, const char *s, const char *before)
{
	if (!s || (before && !strcmp(s, before))) {
		put(b, s ? (uint32_t)SAME_STRING : (uint32_t)NO_STRING);
		return;
	}
	put(b, (uint32_t)strlen(s));
	buf_add(b, s, strlen(s));
}

static void put_site(struct buf *b, const struct instrument_site *s, const struct instrument_site *before)
{
	put(b, s->ordinal);
	put(b, s->point);
	put(b, s->ptx_line);
	put(b, s->line);
	put(b, s->column);
	put(b, s->space);
	put(b, s->bytes);
	put(b, s->parts_product ? FLAG_PARTS : 0);
	put_string(b, s->file, before->file);
	put_string(b, s->opcode, before->opcode);
	put_string(b, s->function, before->function);
	put_string(b, s->skipped, before->skipped);
	put_string(b, s->unguarded, before->unguarded);
}

void instrument_store(const struct instrument_result *r, struct buf *b)
{
	static const struct instrument_site none;
	put(b, r->n_sites);
	put(b, r->n_probed);
	put(b, r->n_symbols);
	put(b, r->table_entries);
	put(b, (r->launch_param ? FLAG_LAUNCH : 0) | (r->last_bit_may_differ ? FLAG_LAST_BIT : 0));
	put(b, r->n_params);
	put(b, r->launch_param_offset);
	put(b, r->local_bytes_added);
	for (uint32_t i = 0; i < r->n_symbols; i++)
		put_string(b, r->symbols[i], NULL);
	for (uint32_t i = 0; i < r->n_sites; i++)
		put_site(b, &r->sites[i], i ? &r->sites[i - 1] : &none);
}

/* -- reading -- */

struct reader {
	struct arena *arena;
	const char *at, *end;
	bool bad;
};

static uint32_t get(struct reader *r)
{
	uint32_t v = 0;
	if ((size_t)(r->end - r->at) < sizeof(v)) {
		r->bad = true;
		return 0;
	}
	memcpy(&v, r->at, sizeof(v));
	r->at += sizeof(v);
	return v;
}

static const char *get_string(struct reader *r, const char *before)
{
	uint32_t n = get(r);
	if (r->bad || n == (uint32_t)NO_STRING)
		return NULL;
	if (n == (uint32_t)SAME_STRING) {
		r->bad |= !before;
		return before;
	}
	if ((size_t)(r->end - r->at) < n || memchr(r->at, 0, n)) {
		r->bad = true;
		return NULL;
	}
	const char *s = arena_strndup(r->arena, r->at, n);
	r->bad |= !s;
	r->at += n;
	return s;
}

static void get_site(struct reader *r, struct instrument_site *s, const struct instrument_site *before)
{
	s->ordinal = get(r);
	s->point = get(r);
	s->ptx_line = get(r);
	s->line = get(r);
	s->column = get(r);
	s->space = get(r);
	s->bytes = get(r);
	s->parts_product = get(r) & FLAG_PARTS;
	s->file = get_string(r, before->file);
	s->opcode = get_string(r, before->opcode);
	s->function = get_string(r, before->function);
	s->skipped = get_string(r, before->skipped);
	s->unguarded = get_string(r, before->unguarded);
}

static bool plausible(const struct instrument_result *r, size_t bytes)
{
	return r->n_sites <= bytes / (SITE_WORDS * sizeof(uint32_t)) && r->n_symbols <= bytes / sizeof(uint32_t) &&
	       r->table_entries == EBPF_TABLE_SYMBOLS + r->n_symbols && r->n_params <= MAX_PARAMS &&
	       r->launch_param_offset <= MAX_PARAMS;
}

int instrument_restore(struct arena *arena, const char *bytes, size_t n, struct instrument_result *out, size_t *used)
{
	static const struct instrument_site none;
	struct reader r = { arena, bytes, bytes + n, false };
	*out = (struct instrument_result){ .n_sites = get(&r) };
	out->n_probed = get(&r);
	out->n_symbols = get(&r);
	out->table_entries = get(&r);
	uint32_t flags = get(&r);
	out->launch_param = flags & FLAG_LAUNCH;
	out->last_bit_may_differ = flags & FLAG_LAST_BIT;
	out->n_params = get(&r);
	out->launch_param_offset = get(&r);
	out->local_bytes_added = get(&r);
	if (r.bad || !plausible(out, n))
		return -EINVAL;
	out->symbols = arena_array(arena, out->n_symbols, sizeof(*out->symbols));
	out->sites = arena_array(arena, out->n_sites, sizeof(*out->sites));
	if (!out->symbols || !out->sites)
		return -ENOMEM;
	for (uint32_t i = 0; i < out->n_symbols && !r.bad; i++) {
		out->symbols[i] = get_string(&r, NULL);
		r.bad |= !out->symbols[i];
	}
	for (uint32_t i = 0; i < out->n_sites && !r.bad; i++) {
		get_site(&r, &out->sites[i], i ? &out->sites[i - 1] : &none);
		r.bad |= out->sites[i].ordinal != i;
	}
	*used = n - (size_t)(r.end - r.at);
	return r.bad ? -EINVAL : 0;
}
