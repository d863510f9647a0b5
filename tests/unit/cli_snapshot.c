/* What an attach reports is what happened since: launches, and the time that they took. */
#include "cli/snapshot.h"
#include "tap.h"

static struct session_kernel *add(struct session *s, const char *name)
{
	bool created;
	uint32_t id;
	is_int(session_add_kernel(s, 1, name, &id, &created), 0, "kernel %s", name);
	return &session_data(s)->kernels[id];
}

static const struct snap_kernel *find(const struct snapshot *snap, const char *name)
{
	for (uint32_t i = 0; i < snap->n_kernels; i++)
		if (!strcmp(snap->kernels[i].name, name))
			return &snap->kernels[i];
	return NULL;
}

int main(void)
{
	struct session *s;
	struct diag d = { 0 };
	is_int(session_create(&s, &d), 0, "session");
	struct session_kernel *a = add(s, "a"), *b = add(s, "b"), *c;
	/* a: 1000 launches of 2 us, 10 of them timed. b: never again. */
	a->launches = 1000, a->timed = 10, a->time_ns = 20000, a->first_ns = 70000;
	b->launches = 5, b->timed = 5, b->time_ns = 500000;
	struct snapshot *before = snap_take(s);
	is_int((int64_t)before->time_ns, 2000000 + 500000, "time before");
	/* 100 more of a, half of them probed and twice as slow; c is new and ran once. */
	a->launches += 100, a->launches_instrumented += 50, a->timed += 4, a->time_ns += 12000, a->probed_timed = 2, a->probed_ns = 8000;
	c = add(s, "c");
	c->launches = 1, c->first_ns = 9000;
	struct snapshot *now = snap_take(s);
	snap_since(now, before);
	is_int((int64_t)find(now, "a")->launches, 100, "a: launches since");
	is_int((int64_t)find(now, "a")->time_ns, 50 * 4000 + 50 * 2000, "a: their time");
	is_int((int64_t)find(now, "a")->timed, 4, "a: from samples since");
	is_int((int64_t)(find(now, "a")->slowdown * 100), 200, "a: slowdown by all samples");
	is_int((int64_t)find(now, "b")->time_ns, 0, "b: none");
	is_int((int64_t)find(now, "c")->time_ns, 9000, "c: its first");
	is_int((int64_t)now->time_ns, 300000 + 9000, "all");
	is_int((int64_t)now->probed_ns, 200000, "probed");
	is_int((int64_t)now->launches, 101, "launches");
	is_int(now->untimed, 0, "none was never timed");
	/* No sample since: what is known of it tells. */
	a->launches += 10;
	struct snapshot *later = snap_take(s);
	snap_since(later, now);
	snap_free(now);
	now = snap_take(s);
	a->launches += 10;
	snap_free(later);
	later = snap_take(s);
	snap_since(later, now);
	is_int((int64_t)find(later, "a")->launches, 10, "a: without a sample");
	is_int((int64_t)find(later, "a")->time_ns, 10 * 32000 / 14, "a: the mean of all");
	snap_free(before);
	snap_free(now);
	snap_free(later);
	session_destroy(s);
	return tap_done();
}
