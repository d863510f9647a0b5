/* store.c - a result as bytes and back, so that it can be kept beside the machine code it belongs to.
 *
 * Structures go as they lie in memory, without their pointers: the bytes are for this very build. What is pointed
 * to follows. A string is its length and its bytes; one that is the same as in the site before is only said to be so.
 */
#include <errno.h>
#include <string.h>

#include "instrument/instrument.h"

enum { NO_STRING = -1, SAME_STRING = -2, MAX_PARAMS = 1 << 16 };

_Static_assert(sizeof(struct instrument_site) == 80 && sizeof(struct instrument_result) == 504,
	"if what has come is a pointer, what it points to is to be written and read here");

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
	struct instrument_site plain = *s;
	plain.file = plain.opcode = plain.function = plain.skipped = plain.unguarded = NULL;
	buf_add(b, &plain, sizeof(plain));
	put_string(b, s->file, before->file);
	put_string(b, s->opcode, before->opcode);
	put_string(b, s->function, before->function);
	put_string(b, s->skipped, before->skipped);
	put_string(b, s->unguarded, before->unguarded);
}

void instrument_store(const struct instrument_result *r, struct buf *b)
{
	static const struct instrument_site none;
	struct instrument_result plain = *r;
	plain.ptx = plain.lined = NULL;
	plain.ptx_bytes = plain.lined_bytes = 0;
	plain.sites = NULL;
	plain.symbols = NULL;
	buf_add(b, &plain, sizeof(plain));
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

static void get(struct reader *r, void *to, size_t n)
{
	r->bad |= (size_t)(r->end - r->at) < n;
	if (r->bad)
		return;
	memcpy(to, r->at, n);
	r->at += n;
}

static uint32_t get_number(struct reader *r)
{
	uint32_t v = 0;
	get(r, &v, sizeof(v));
	return v;
}

/* What is neither true nor false must not be read as either. */
static bool is_bool(const bool *b)
{
	unsigned char byte;
	memcpy(&byte, b, 1);
	return byte <= 1;
}

static const char *get_string(struct reader *r, const char *before)
{
	uint32_t n = get_number(r);
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
	get(r, s, sizeof(*s));
	s->file = get_string(r, before->file);
	s->opcode = get_string(r, before->opcode);
	s->function = get_string(r, before->function);
	s->skipped = get_string(r, before->skipped);
	s->unguarded = get_string(r, before->unguarded);
	r->bad |= !is_bool(&s->parts_product) || s->point < EBPF_POINT_ENTRY || s->point > EBPF_POINT_LOAD_DONE;
}

/* Numbers that nothing can have counted would make an estimate that is no number. */
static bool is_cost(const struct instrument_cost *c)
{
	const double most = 1e90, *all = (const double *)c;
	_Static_assert(sizeof(c->in) == sizeof(*c) && _Alignof(struct instrument_cost) == _Alignof(double), "nothing but numbers");
	for (size_t i = 0; i < sizeof(*c) / sizeof(*all); i++)
		if (!(all[i] >= 0 && all[i] < most))
			return false;
	return true;
}

static bool plausible(const struct instrument_result *r, size_t bytes)
{
	return !r->ptx && !r->lined && !r->sites && !r->symbols && is_bool(&r->launch_param) && is_bool(&r->reads_launch) && is_bool(&r->sampled) &&
	       is_bool(&r->last_bit_may_differ) && r->n_sites <= bytes / sizeof(*r->sites) &&
	       r->n_symbols <= bytes / sizeof(uint32_t) && r->table_entries == EBPF_TABLE_SYMBOLS + r->n_symbols &&
	       r->n_params <= MAX_PARAMS && r->launch_param_offset <= MAX_PARAMS;
}

int instrument_restore(struct arena *arena, const char *bytes, size_t n, struct instrument_result *out, size_t *used)
{
	static const struct instrument_site none;
	struct reader r = { arena, bytes, bytes + n, false };
	get(&r, out, sizeof(*out));
	if (r.bad || !plausible(out, n))
		return -EINVAL;
	if (!is_cost(&out->cost)) /* of a kernel with calls of calls in loops it may be too much to count */
		out->cost = (struct instrument_cost){ 0 };
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
