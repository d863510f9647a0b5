/* filter.c - which launches of a matched kernel run as its variant: --skip, --launches, --for,
 * --device, --stream; and in which of its warps: --sample-warps, --max-overhead (struct session_filter).
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
	return !f->stream || stream_used(stream, per_thread) == f->stream - 1;
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

/* -- programs in a part of the warps ------------------------------------------------------ */

/* With --max-overhead two launches in GROUP are compared: one runs the original, one the programs as they are. Another of the group has
 * twice the weight, for the one that ran without: so sums are those of all launches, on average. Which they are depends on
 * a hash, so that they are a fair sample of whatever the program does in turn. A kernel's first launches are like all
 * others, so that one which has but a few is measured exactly. */
enum { GROUP = 8, FIRST = 4, ENOUGH = 4, SURE = 16, MAX_ONE_IN = 1024, MAX_FAILED = 6 };

static uint32_t mix(uint64_t x)
{
	x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
	x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
	return (uint32_t)(x >> 32);
}

uint32_t filter_seed(void)
{
	return mix(filter()->sample_seed);
}

static void place_in_group(const struct kernel *k, uint64_t n, struct sample *out)
{
	uint64_t group = n / GROUP;
	uint32_t first = group ? 0 : FIRST, room = GROUP - first, at = n % GROUP,
		 h = mix((group << 16 ^ k->row) + filter()->sample_seed);
	uint32_t plain = h % room, twice = (plain + 1 + h / room % (room - 1)) % room,
		 compared = (plain + 1) % room;
	if (compared == twice)
		compared = (plain + 2) % room;
	if (at < first)
		return;
	at -= first;
	out->times = at == plain ? 0 : at == twice ? 2 : 1;
	out->timed = at == plain || at == compared;
}

/* Nobody takes times where none may be taken: then there is no limit. */
static bool can_compare(void)
{
	return !__atomic_load_n(&agent.shared->untimed, __ATOMIC_RELAXED);
}

void filter_sample(const struct kernel *k, uint64_t n, struct sample *out)
{
	const struct session_filter *f = filter();
	uint32_t one_in = atomic_load_explicit(&k->pace.one_in, memory_order_relaxed);
	*out = (struct sample){ f->sample_warps ? f->sample_warps : 1, 1, false };
	if (!f->active || !f->max_overhead_ppm || !can_compare())
		return;
	out->one_in = one_in ? one_in : out->one_in;
	out->times = !atomic_load_explicit(&k->pace.given_up, memory_order_relaxed);
	if (out->times && n != FILTER_OF_GRAPH)
		place_in_group(k, n, out);
	if (atomic_load_explicit(&agent.captures, memory_order_relaxed))
		out->timed = false;
}

/* -- --max-overhead: how many warps ------------------------------------------------------- */

static void add_time(struct pace_times *t, double ms)
{
	t->n++;
	t->ms += ms;
	t->square += ms * ms;
}

static double mean(const struct pace_times *t)
{
	return t->ms / t->n;
}

/* Of the mean, squared. */
static double error_squared(const struct pace_times *t)
{
	double m = mean(t), v = t->square / t->n - m * m;
	return t->n > 1 && v > 0 ? v / (t->n - 1) : 0;
}

/* Whether a is above b by more than that number of standard errors. */
static bool exceeds(double a, double b, double errors, double error_squared)
{
	return a > b && (a - b) * (a - b) > errors * errors * error_squared;
}

static uint32_t round_up(double n)
{
	uint32_t p = 1;
	while (p < MAX_ONE_IN && p < n)
		p *= 2;
	return p;
}

static void set_pace(struct kernel *k, uint32_t one_in)
{
	struct session_kernel *row = atomic_load(&k->shared);
	if (!row)
		return;
	atomic_store(&k->pace.one_in, one_in);
	k->pace.sampled = (struct pace_times){ 0 };
	row->one_in = one_in;
	row->one_in_least = !row->one_in_least || one_in < row->one_in_least ? one_in : row->one_in_least;
	row->one_in_most = one_in > row->one_in_most ? one_in : row->one_in_most;
}

static void give_up(struct kernel *k)
{
	struct session_kernel *row = atomic_load(&k->shared);
	atomic_store(&k->pace.given_up, 1);
	row->given_up = 1;
	agent_log("%s: %.1f%% slower with one warp in %u: no probes", k->name, (double)row->overhead_ppm / 1e4, row->one_in);
}

/* over: what a launch took longer, as a part; error: its standard error, squared. What is surely too much, or is still too much when
 * it is known well, is changed at once; fewer warps than before are tried again the later the more often that was in vain. */
static void judge(struct kernel *k, double over, double error, double limit)
{
	struct pace *p = &k->pace;
	uint32_t one_in = atomic_load(&p->one_in), n = p->sampled.n;
	bool above = exceeds(over, limit, 1, error) || (n >= SURE && over > limit),
	     below = n >= (uint32_t)ENOUGH << p->failed && exceeds(limit / 2, over, 1, error);
	if (above && one_in < MAX_ONE_IN) {
		uint32_t wanted = round_up(over / limit * one_in);
		p->failed += p->failed < MAX_FAILED;
		set_pace(k, wanted > one_in ? wanted : one_in * 2);
	} else if (above && n >= (over > 2 * limit ? SURE / 2 : SURE) && exceeds(over, limit, 2, error)) {
		give_up(k);
	} else if (below && one_in > 1) {
		set_pace(k, one_in / 2);
	}
}

/* As many warps as the estimate's lower end allows: what is more than that is found soon, and costs less than a count that was
 * sampled for nothing. */
static uint32_t first_pace(const struct kernel *k, const struct session_filter *f)
{
	const struct session_kernel *row = atomic_load(&k->shared);
	if (!row || row->estimate_least_ppm < 1000000 || !can_compare())
		return 1;
	return round_up((double)(row->estimate_least_ppm - 1000000) / (double)f->max_overhead_ppm);
}

static uint64_t youngest(uint64_t links)
{
	uint64_t changed = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		uint64_t at = links >> i & 1 ? __atomic_load_n(&agent.shared->links[i].changed, __ATOMIC_RELAXED) : 0;
		changed = at > changed ? at : changed;
	}
	return changed;
}

/* Other programs cost something else. */
static void begin_again(struct kernel *k, uint64_t links, uint64_t changed)
{
	struct session_kernel *row = atomic_load(&k->shared);
	k->pace.links = links;
	k->pace.changed = changed;
	k->pace.failed = 0;
	k->pace.plain = (struct pace_times){ 0 };
	atomic_store(&k->pace.given_up, 0);
	if (!row)
		return;
	row->one_in_least = row->one_in_most = row->given_up = 0;
	row->overhead_ppm = 0;
}

void filter_begin(struct kernel *k)
{
	const struct session_filter *f = filter();
	uint64_t links = atomic_load(&k->links), changed = youngest(links);
	if (!f->active || !session_samples(f) || (k->pace.links == links && k->pace.changed == changed))
		return;
	lock_take(&agent.times.lock);
	begin_again(k, links, changed);
	set_pace(k, f->sample_warps ? f->sample_warps : first_pace(k, f));
	lock_drop(&agent.times.lock);
}

void filter_adapt(struct kernel *k, uint32_t one_in, double ms)
{
	struct pace *p = &k->pace;
	struct session_kernel *row = atomic_load(&k->shared);
	uint64_t limit = filter()->max_overhead_ppm;
	uint32_t now = atomic_load(&p->one_in);
	if (!limit || !row || !now || (one_in && one_in != now))
		return; /* or launched before that changed */
	add_time(one_in ? &p->sampled : &p->plain, ms);
	if (p->sampled.n < ENOUGH || p->plain.n < ENOUGH || !(mean(&p->plain) > 0))
		return;
	double without = mean(&p->plain), over = mean(&p->sampled) / without - 1;
	double error = (error_squared(&p->plain) + error_squared(&p->sampled)) / (without * without);
	row->overhead_ppm = (int64_t)(over * 1e6);
	judge(k, over, error, (double)limit / 1e6);
}
