/* inside.c - lists of programs that running kernels are led to: open, or closed with somebody inside (live/live.h). */
#include <stddef.h>

#include "agent/live_state.h"

enum {
	FLIGHT_NS = 100000, /* by then what a lane stored before it counted itself out has been stored */
	REST_NS = 10000000,
	REST_AGAIN = 10, /* times as long until they do again */
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

CUdeviceptr list_inside(const struct live *l, uint32_t list)
{
	return l->value + LIVE_INSIDE + (uint64_t)list * LIVE_INSIDE_BYTES;
}

bool list_open(struct context *c, uint32_t list, uint32_t number, uint64_t rest_until)
{
	struct live *l = c->live;
	uint32_t n = live_sms(c);
	for (uint32_t i = 0; i < n; i++)
		l->lines[i] = (struct live_line){ .n = number | (rest_until ? LIVE_RESTS : 0), .rest_until = rest_until };
	return live_put(c, list_inside(l, list) + offsetof(struct live_inside, open), l->lines, n * sizeof(*l->lines)) && live_finished(c);
}

/* -- lists that no word leads to ------------------------------------------------------ */

bool list_is_old(const struct list *x)
{
	return x->links && !x->words;
}

bool lists_close(struct context *c)
{
	bool good = true;
	for (uint32_t k = 0; k < LIVE_LISTS && good; k++) {
		struct list *x = &c->live->lists[k];
		if (!list_is_old(x) || x->closed_ns)
			continue;
		good = list_open(c, k, 0, 0);
		x->closed_ns = now_ns();
	}
	return good;
}

static bool count_inside(struct context *c, uint32_t k)
{
	struct live *l = c->live;
	uint32_t n = live_sms(c);
	if (!ok(REAL(cuMemcpyDtoHAsync_v2)(l->lines, list_inside(l, k), n * sizeof(*l->lines), c->stream)) || !live_finished(c))
		return false;
	l->lists[k].inside = 0;
	for (uint32_t i = 0; i < n; i++)
		l->lists[k].inside += (uint32_t)l->lines[i].n;
	return true;
}

static void look_into(struct context *c, uint32_t k, uint64_t now)
{
	struct list *x = &c->live->lists[k];
	uint32_t before = x->inside;
	if (!count_inside(c, k))
		return;
	if (x->inside && !before)
		agent_log("live: %u lanes are inside links %llx", x->inside, (unsigned long long)x->links);
	if (before && !x->inside)
		agent_log("live: links %llx are left after %.2f ms", (unsigned long long)x->links, (double)(now - x->closed_ns) / 1e6);
	x->empty_ns = x->inside ? 0 : now_ns();
}

/* A lane that counts itself in later than the list was closed leaves again, so that one that was once empty stays so. */
void lists_look(struct context *c)
{
	struct live *l = c->live;
	for (uint32_t k = 0; k < LIVE_LISTS; k++) {
		struct list *x = &l->lists[k];
		uint64_t now = now_ns();
		if (!list_is_old(x) || !x->closed_ns || now - x->closed_ns < LIVE_SETTLE_NS)
			continue;
		if (!x->empty_ns)
			look_into(c, k, now);
		else if (now - x->empty_ns >= FLIGHT_NS)
			*x = (struct list){ 0 };
	}
}

/* -- turns for those that are inside ---------------------------------------------------- */

static bool write_rest(struct context *c, uint64_t until)
{
	struct live *l = c->live;
	uint64_t word = until ? LIVE_REST_UNTIL(until) : 0;
	bool good = true;
	for (uint32_t k = 0; k < LIVE_LISTS && good; k++)
		if (l->lists[k].words)
			good = list_open(c, k, l->lists[k].number, until);
	for (uint32_t k = 0; k < LIVE_KERNELS && good; k++)
		if (l->had[k] && !l->list[LIVE_LOOP][k])
			good = live_put(c, l->value + LIVE_WORD(LIVE_LOOP, k), &word, sizeof(word));
	return good && live_finished(c) && bell_ring(c);
}

/* Whether somebody is inside of a list that is closed. */
static bool is_held_up(const struct live *l)
{
	for (uint32_t k = 0; k < LIVE_LISTS; k++)
		if (list_is_old(&l->lists[k]) && l->lists[k].inside)
			return true;
	return false;
}

/* Ever more seldom, since whoever is inside may wait for something else. The device is told until when, so that nobody rests longer
 * whatever becomes of this thread. */
void lists_give_turns(struct context *c)
{
	struct live *l = c->live;
	bool held_up = is_held_up(l), rests = l->rest_ns;
	uint64_t now = now_ns();
	if (rests ? held_up && now - l->rest_ns < REST_NS : !held_up || l->rings || now < l->rest_at)
		return;
	if (!rests) {
		l->rest_wait *= REST_AGAIN;
		l->rest_at = now + l->rest_wait;
	}
	l->rest_ns = rests ? 0 : now;
	bool good = write_rest(c, rests ? 0 : now - (uint64_t)c->clock_offset_ns + REST_NS);
	agent_log("live: others rest%s%s", rests ? " no more" : "", good ? "" : ", but that cannot be written");
}

/* -- what holds links ------------------------------------------------------------------ */

uint64_t lists_held(const struct live *l, uint64_t *since)
{
	uint64_t links = 0;
	*since = UINT64_MAX;
	for (uint32_t k = 0; k < LIVE_LISTS; k++) {
		if (!list_is_old(&l->lists[k]))
			continue;
		links |= l->lists[k].links;
		*since = l->lists[k].closed_ns < *since ? l->lists[k].closed_ns : *since;
	}
	return links;
}
