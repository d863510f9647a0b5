/* filter.c - which launches of a matched kernel run as its variant: --skip, --launches, --for,
 * --device, --stream (struct session_filter).
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
