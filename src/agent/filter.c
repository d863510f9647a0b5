/* filter.c - which launches of a matched kernel run as its variant: --skip, --launches, --for,
 * --device, --stream, --max-overhead (struct session_filter).
 *
 * Without a filter the cost is one load. The counts are the session's, so that "the first N
 * launches" means those of all its processes. */
#include "agent/agent.h"

static struct session_filter *filter(void)
{
	return &agent.shared->filter;
}

bool filter_device(const struct context *c)
{
	const struct session_filter *f = filter();
	return !f->active || !f->device || f->device - 1 == (uint32_t)c->device;
}

/* Both ends are final: what is over does not begin again. */
bool filter_over(void)
{
	const struct session_filter *f = filter();
	if (f->launches && __atomic_load_n(&f->seen, __ATOMIC_RELAXED) >= f->skip + f->launches)
		return true;
	uint64_t first = f->for_ns ? __atomic_load_n(&f->first_ns, __ATOMIC_RELAXED) : 0;
	return first && now_ns() - first >= f->for_ns;
}

bool filter_stream(CUstream stream, bool per_thread)
{
	const struct session_filter *f = filter();
	if (!f->stream)
		return true;
	stream_used(stream, per_thread);
	return stream_number(stream) == f->stream - 1;
}

bool filter_launch(void)
{
	struct session_filter *f = filter();
	uint64_t n = __atomic_fetch_add(&f->seen, 1, __ATOMIC_RELAXED), none = 0;
	if (n < f->skip || (f->launches && n - f->skip >= f->launches))
		return false;
	if (f->for_ns && !__atomic_load_n(&f->first_ns, __ATOMIC_RELAXED))
		__atomic_compare_exchange_n(&f->first_ns, &none, now_ns(), false, __ATOMIC_RELAXED,
			__ATOMIC_RELAXED);
	return true;
}

/* -- --max-overhead --------------------------------------------------------------------- */

enum { CONTROL = 8, ENOUGH = 4, MAX_ONE_IN = 1 << 16 };

/* Without a limit in force one launch in CONTROL is left alone, so that there is something to compare
 * with. */
bool filter_spares(const struct kernel *k, uint64_t n)
{
	uint32_t one_in = atomic_load_explicit(&k->one_in, memory_order_relaxed);
	return one_in > 1 ? n % one_in : n % CONTROL == CONTROL / 2;
}

bool filter_is_rare(const struct kernel *k, bool variant)
{
	uint32_t one_in = atomic_load_explicit(&k->one_in, memory_order_relaxed);
	return !atomic_load_explicit(&agent.captures, memory_order_relaxed) &&
	       !__atomic_load_n(&agent.shared->untimed, __ATOMIC_RELAXED) &&
	       variant == (one_in > 2);
}

/* With one launch in n probed, the kernel takes overhead / n more time than without. */
void filter_adapt(struct kernel *k)
{
	uint64_t limit = filter()->max_overhead_ppm;
	struct session_kernel *row = atomic_load(&k->shared);
	uint64_t probed = __atomic_load_n(&row->probed_timed, __ATOMIC_RELAXED),
		 plain = __atomic_load_n(&row->timed, __ATOMIC_RELAXED) - probed;
	if (!limit || probed < ENOUGH || plain < ENOUGH || plain >> 62)
		return;
	double with = (double)row->probed_ns / (double)probed,
	       without = (double)(row->time_ns - row->probed_ns) / (double)plain;
	double ppm = without > 0 ? (with / without - 1) * 1e6 : 0;
	double n = ppm > (double)limit ? ppm / (double)limit : 1;
	uint32_t one_in = n >= MAX_ONE_IN ? MAX_ONE_IN : (uint32_t)n + (n > (uint32_t)n);
	/* A launch is probed or not for as long as the number stands: small changes only add noise. */
	uint32_t now = atomic_load(&k->one_in);
	if (one_in < now && one_in * 2 > now)
		return;
	atomic_store(&k->one_in, one_in);
	row->one_in = one_in;
}
