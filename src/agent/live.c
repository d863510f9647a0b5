/* live.c - programs into kernels that are already running (live/live.h).
 *
 * The device's copy of the map "egpu_live" holds a word for each kernel and point, and behind the words the lists and programs they
 * lead to. All of it is written by DMA on a stream of its own, which waits for nobody: maps, programs, lists, and when those are
 * finished the words. Then the bell is rung, twice (live/live.h); what all multiprocessors have heard twice has settled, and only then
 * links are said to be armed. Those that have been taken away are said to be gone when nobody is inside the lists that had them.
 *
 * What was written is never written again while a kernel that could hold it runs: room is taken from the front, and all of it comes
 * free when the context is idle and nobody launches.
 */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/live_state.h"
#include "live/object.h"

enum {
	POOL_BYTES = 64 << 20, /* for maps of programs that come while kernels run, at least: an allocation may wait for them */
	POOL_MOST = 512 << 20,
	POOL_SHARE = 256,      /* this part of the device's memory, between the two */
	LOOK_MS = 2,           /* between looks at the session */
	SETTLE_MS = 1,
	IDLE_MS = 200,
	BELL_GUARDS_NS = 5000000, /* guards have to hear by themselves; then the doorbell kernel goes to those that have not */
	BELL_AGAIN_NS = 20000000, /* until it goes again */
	HELD_NS = 1000000000, /* after that lists that are not left are looked at now and then */
	HELD_MS = 20,
};

static bool ok(CUresult r)
{
	return r == CUDA_SUCCESS;
}

/* -- writing -------------------------------------------------------------------- */

bool live_finished(struct context *c)
{
	return ok(REAL(cuStreamSynchronize)(c->stream));
}

bool live_put(struct context *c, CUdeviceptr at, const void *from, size_t bytes)
{
	return ok(REAL(cuMemcpyHtoDAsync_v2)(at, from, bytes, c->stream));
}

uint32_t live_sms(const struct context *c)
{
	return c->sms < LIVE_SMS ? c->sms : LIVE_SMS;
}

/* Room for something that nothing has been at since the context was last idle; 0: none left. What comes leaves some for lists without what goes. */
static CUdeviceptr code_room(struct live *l, size_t bytes, bool comes)
{
	const uint64_t lists = LIVE_LISTS * LIVE_ALIGN, kept = lists < l->code_bytes / 4 ? lists : l->code_bytes / 4;
	uint64_t at = l->code_used, need = (bytes + LIVE_ALIGN - 1) / LIVE_ALIGN * LIVE_ALIGN;
	if (need + (comes ? kept : 0) > l->code_bytes - at)
		return 0;
	l->code_used += need;
	return l->value + LIVE_CODE + at;
}

int live_pool_take(struct context *c, uint32_t map, size_t bytes, CUdeviceptr *out, struct diag *d)
{
	struct live *l = c->live;
	uint64_t need = (bytes + LIVE_ALIGN - 1) / LIVE_ALIGN * LIVE_ALIGN;
	const char *name = agent.shared->maps[map].name;
	if (need > l->pool_bytes)
		return diag_set(d, E2BIG, "map %.32s takes %zu bytes on the device; maps of programs for kernels that run have %d MiB together", name,
			bytes, (int)(l->pool_bytes >> 20));
	if (need > l->pool_bytes - l->pool_used)
		return diag_set(d, ENOSPC,
			"map %.32s takes %zu bytes, and of the %d MiB for maps of programs for kernels that run %llu are left until those have ended", name,
			bytes, (int)(l->pool_bytes >> 20), (unsigned long long)(l->pool_bytes - l->pool_used));
	if (!out)
		return 0;
	l->pool_used += need;
	*out = l->pool + l->pool_used - need;
	return 0;
}

/* Addresses into the ld_imm64 that name maps. */
static int resolve(struct context *c, uint64_t *insns, const struct live_reloc *relocs, uint32_t n, struct diag *d)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = c->maps[relocs[i].map].address;
		if (!at || relocs[i].offset >= c->maps[relocs[i].map].bytes)
			return diag_set(d, EINVAL, "a live program refers to a map that the device does not have");
		live_put_address(insns, &relocs[i], at);
	}
	return 0;
}

static int write_program(struct context *c, uint32_t link, const struct live_object *o, const struct live_reloc *relocs,
	const uint64_t *insns, struct diag *d)
{
	size_t bytes = sizeof(struct live_program) + o->n_insns * sizeof(uint64_t);
	struct live_program *p = malloc(bytes);
	CUdeviceptr at = p ? code_room(c->live, bytes, true) : 0;
	int err = at ? 0 : diag_set(d, ENOSPC, "programs that came before took the room; it is free again when the kernels that run have ended");
	CUdeviceptr trace = o->trace ? c->maps[o->trace - 1].address : 0;
	if (!err && o->trace && (!trace || !c->maps[o->trace - 1].is_ring))
		err = diag_set(d, EINVAL, "a live program prints to a map that the device does not have");
	if (!err) {
		*p = (struct live_program){ .n_insns = o->n_insns,
			.flags = o->flags,
			.budget = o->budget,
			.sms = c->sms ? c->sms : 1,
			.clock = (uint64_t)c->clock_offset_ns,
			.seed = now_ns() * 0x9e3779b97f4a7c15ull,
			.ops = o->ops,
			.trace = trace };
		memcpy(p->insns, insns, o->n_insns * sizeof(uint64_t));
		err = resolve(c, p->insns, relocs, o->n_relocs, d);
	}
	if (!err && (!live_put(c, at, p, bytes) || !live_finished(c)))
		err = diag_set(d, EIO, "a live program cannot be copied to the device");
	free(p);
	if (!err)
		c->live->program[link] = at;
	return err;
}

/* The link's program, with its maps, on the device. */
static int place_program(struct context *c, uint32_t link, struct diag *d)
{
	const struct live_object *o;
	const struct live_reloc *relocs;
	const uint64_t *insns;
	char *bytes = NULL;
	size_t size;
	uint64_t maps = 0;
	if (c->live->program[link])
		return 0;
	int err = session_read_prog(agent.session, agent.shared->links[link].prog, &bytes, &size);
	if (err)
		return diag_set(d, -err, "live program %u cannot be read from the session", link);
	err = live_object_parse(bytes, size, &o, &relocs, &insns, d);
	for (uint32_t i = 0; !err && i < o->n_relocs; i++)
		maps |= UINT64_C(1) << relocs[i].map;
	if (!err && o->trace)
		maps |= UINT64_C(1) << (o->trace - 1);
	if (!err)
		err = devmap_make_pooled(c, maps, d);
	if (!err)
		err = write_program(c, link, o, relocs, insns, d);
	free(bytes);
	return err;
}

/* -- which programs where --------------------------------------------------------- */

static bool is_live(const struct session_link *l)
{
	return __atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == SESSION_LINK_ATTACHED && l->live;
}

static int point_of_link(const struct session_link *l)
{
	switch (l->point) {
	case EBPF_POINT_ENTRY:
		return LIVE_ENTRY;
	case EBPF_POINT_EXIT:
		return LIVE_EXIT;
	case EBPF_POINT_BLOCK:
		return LIVE_LOOP;
	default:
		return LIVE_MEM;
	}
}

struct change {
	uint32_t point, kernel;
	uint64_t links;
	CUdeviceptr list;
	uint8_t place; /* in struct live, and 1 */
	uint32_t number; /* of the list */
	struct live_list *bytes; /* of the list, where it is the first with these links: the copy may read them until it has finished */
};

struct changes {
	struct change *all;
	size_t n, cap;
	bool failed;
};

static void add_change(struct changes *x, struct change change)
{
	if (x->n == x->cap) {
		size_t cap = x->cap ? 2 * x->cap : 64;
		struct change *all = realloc(x->all, cap * sizeof(*all));
		if (!all) {
			x->failed = true;
			return;
		}
		x->all = all;
		x->cap = cap;
	}
	x->all[x->n++] = change;
}

/* What the words of one kernel should lead to. */
static void compare_kernel(struct context *c, const struct kernel *k, uint64_t links, struct changes *x)
{
	uint64_t want[LIVE_POINTS] = { 0 };
	if (k->row >= LIVE_KERNELS)
		return;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		char pattern[SESSION_PATTERN_BYTES];
		if (!(links >> i & 1))
			continue;
		memcpy(pattern, agent.shared->links[i].pattern, sizeof(pattern));
		pattern[sizeof(pattern) - 1] = 0;
		if (session_match(pattern, k->name, k->demangled) > 0)
			want[point_of_link(&agent.shared->links[i])] |= UINT64_C(1) << i;
	}
	for (uint32_t p = 0; p < LIVE_POINTS; p++)
		if (want[p] != c->live->shown[p][k->row] || (native_code(c->live->native, want[p]) != 0) != c->live->coded[p][k->row])
			add_change(x, (struct change){ .point = p, .kernel = k->row, .links = want[p] });
}

static void compare(struct context *c, uint64_t links, struct changes *x)
{
	for (struct image *im = atomic_load(&agent.images); im; im = im->next)
		for (uint32_t i = 0; i < im->n_kernels; i++)
			compare_kernel(c, &im->kernels[i], links, x);
}

static void free_changes(struct changes *x)
{
	for (size_t i = 0; i < x->n; i++)
		free(x->all[i].bytes);
	free(x->all);
}

static bool write_list(struct context *c, struct change *change, bool comes)
{
	struct live_list *list = change->bytes = calloc(1, sizeof(*list));
	if (!list)
		return false;
	for (uint32_t link = 0; link < SESSION_MAX_LINKS && list->n < LIVE_PER_LIST; link++)
		if (change->links >> link & 1)
			list->programs[list->n++] = c->live->program[link];
	list->code = native_code(c->live->native, change->links);
	list->inside = list_inside(c->live, change->place - 1);
	list->number = change->number = ++c->live->lists_number;
	list->words = c->live->value;
	change->list = code_room(c->live, sizeof(*list), comes);
	return change->list && list_open(c, change->place - 1, (uint32_t)list->number, 0) && live_put(c, change->list, list, sizeof(*list));
}

/* One list serves every kernel and point with the same links: the first change with them. */
static struct change *first_with(struct changes *x, uint64_t links)
{
	size_t i = 0;
	while (x->all[i].links != links)
		i++;
	return &x->all[i];
}

/* Places are taken when words lead to them. */
static bool choose_places(const struct live *l, struct changes *x)
{
	uint32_t next = 0;
	for (size_t i = 0; i < x->n; i++) {
		struct change *change = &x->all[i], *first = first_with(x, change->links);
		if (!change->links)
			continue;
		while (change == first && next < LIVE_LISTS && l->lists[next].links)
			next++;
		if (change == first && next == LIVE_LISTS)
			return false;
		change->place = change == first ? (uint8_t)++next : first->place;
	}
	return true;
}

/* comes: for programs that are new. */
static bool write_lists(struct context *c, struct changes *x, bool comes)
{
	bool good = choose_places(c->live, x);
	for (size_t i = 0; i < x->n && good; i++) {
		struct change *change = &x->all[i], *first = first_with(x, change->links);
		if (change->links && change == first)
			good = write_list(c, change, comes);
		change->list = first->list;
		change->number = first->number;
	}
	return live_finished(c) && good;
}

static void note_word(struct live *l, const struct change *change)
{
	uint8_t *place = &l->list[change->point][change->kernel];
	if (*place)
		l->lists[*place - 1].words--;
	*place = change->place;
	if (*place) {
		l->had[change->kernel] = true;
		l->lists[*place - 1].links = change->links;
		l->lists[*place - 1].number = change->number;
		l->lists[*place - 1].words++;
	}
	l->shown[change->point][change->kernel] = change->links;
	l->coded[change->point][change->kernel] = native_code(l->native, change->links) != 0;
}

static bool write_words(struct context *c, const struct changes *x)
{
	bool good = true;
	for (size_t i = 0; i < x->n && good; i++) {
		const struct change *change = &x->all[i];
		good = live_put(c, c->live->value + LIVE_WORD(change->point, change->kernel), &change->list, sizeof(change->list));
		if (good)
			note_word(c->live, change);
	}
	return live_finished(c) && good;
}

static uint64_t attached(void)
{
	uint64_t links = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (is_live(&agent.shared->links[i]))
			links |= UINT64_C(1) << i;
	return agent_off_word() ? 0 : links;
}

/* -- room ------------------------------------------------------------------------- */

/* Maps of clients that have programs for running kernels. */
static uint64_t maps_wanted(uint64_t links)
{
	uint64_t maps = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (links >> i & 1)
			maps |= build_client_maps(agent.shared->links[i].owner);
	return maps;
}

/* All words to zero and all room free; nothing runs, and nobody can launch meanwhile. */
static bool start_over(struct context *c)
{
	struct live *l = c->live;
	if (!ok(REAL(cuMemsetD8Async)(l->value, 0, LIVE_WORDS_BYTES, c->stream)) || !live_finished(c))
		return false;
	devmap_drop(c, devmap_pooled(c) & ~maps_wanted(attached()));
	if (!devmap_pooled(c))
		l->pool_used = 0;
	memset(l->lists, 0, sizeof(l->lists));
	memset(l->list, 0, sizeof(l->list));
	memset(l->shown, 0, sizeof(l->shown));
	memset(l->coded, 0, sizeof(l->coded));
	memset(l->had, 0, sizeof(l->had));
	l->rest_ns = 0;
	native_start_over(l->native);
	memset(l->program, 0, sizeof(l->program));
	l->code_used = 0;
	l->again = true;
	atomic_store(&l->full, false);
	agent_log("live: room is free again");
	return true;
}

static bool start_over_now(struct context *c)
{
	const char *why;
	if (!gate_close(&agent.gate))
		return false;
	bool done = stream_idle(&why) && start_over(c);
	gate_open(&agent.gate);
	return done;
}

bool live_wants_idle(void)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (c->live && !atomic_load(&c->dead) && atomic_load(&c->live->full))
			return true;
	return false;
}

void live_idle(void)
{
	CUcontext was;
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next) {
		if (!c->live || !atomic_load(&c->live->full) || !lock_try(&c->copying))
			continue;
		if (!atomic_load(&c->dead) && ok(REAL(cuCtxPushCurrent_v2)(c->handle))) {
			start_over(c);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		lock_drop(&c->copying);
	}
}

/* -- publishing ------------------------------------------------------------------- */

static void note_native(struct context *c, uint64_t links)
{
	uint64_t changed = c->live->coded_links ^ links;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (changed >> i & 1)
			__atomic_fetch_add(&agent.shared->links[i].native, links >> i & 1 ? 1 : -1, __ATOMIC_RELEASE);
	c->live->coded_links = links;
}

static void note_links(struct context *c, uint64_t armed)
{
	uint64_t changed = c->live->armed ^ armed, now = now_ns();
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		struct session_link *l = &agent.shared->links[i];
		if (!(changed >> i & 1))
			continue;
		__atomic_store_n(&l->armed_ns, now, __ATOMIC_RELAXED);
		__atomic_fetch_add(&l->armed, armed >> i & 1 ? 1 : -1, __ATOMIC_RELEASE);
	}
	c->live->armed = armed;
}

/* What is published has been heard everywhere. */
static void note_armed(struct context *c)
{
	struct live *l = c->live;
	note_links(c, l->armed | l->links);
	note_native(c, native_links(l->native, l->links) | (l->coded_links & ~l->links));
}

/* How many lanes keep a link from being gone. */
static void note_inside(const struct live *l)
{
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		uint32_t n = 0;
		if (!(l->armed >> i & 1) || l->links >> i & 1)
			continue;
		for (uint32_t k = 0; k < LIVE_LISTS; k++)
			n += list_is_old(&l->lists[k]) && l->lists[k].links >> i & 1 ? l->lists[k].inside : 0;
		__atomic_store_n(&agent.shared->links[i].inside, n, __ATOMIC_RELAXED);
	}
}

/* What is published no more is gone when nobody is inside; whoever has not heard of it finds out before it begins. What programs that are gone have left
 * is there to be read before anybody is told. */
static void note_gone(struct context *c)
{
	struct live *l = c->live;
	uint64_t since, inside = lists_held(l, &since) & ~l->links, stay = l->links | inside;
	note_inside(l);
	if (l->ran & ~stay)
		devmap_take_rest(c, devmap_pooled(c) & ~maps_wanted(attached()));
	l->ran &= stay;
	note_links(c, l->armed & stay);
	note_native(c, l->coded_links & stay);
	if (!inside && !(l->links & ~attached()))
		atomic_store(&l->settled, l->generation);
}

/* How many multiprocessors keep links from being armed. */
static void note_waiting(const struct context *c, uint32_t deaf)
{
	uint64_t waiting = attached() & ~c->live->armed;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (waiting >> i & 1)
			__atomic_store_n(&agent.shared->links[i].unheard, deaf, __ATOMIC_RELAXED);
}

static void note_why(uint32_t link, const char *why)
{
	uint32_t text = *why ? session_add_text(agent.session, why) : 0;
	__atomic_store_n(&agent.shared->links[link].why, text, __ATOMIC_RELAXED);
}

/* One look at whether the bell has been heard. */
static void hear(struct context *c)
{
	struct live *l = c->live;
	uint64_t now = now_ns();
	uint32_t deaf = bell_deaf(c);
	if (deaf) {
		note_waiting(c, deaf);
		if (l->sent_ns ? now - l->sent_ns >= BELL_AGAIN_NS : now - l->rung_ns >= BELL_GUARDS_NS) {
			agent_log("live: %u multiprocessors have not heard the bell after %.0f ms", deaf, (double)(now - l->written_ns) / 1e6);
			bell_send(c);
		}
	} else if (l->rings > 1) {
		if (now - l->written_ns >= LIVE_SETTLE_NS && bell_ring(c))
			l->rings--;
	} else {
		l->rings = 0;
		note_armed(c);
		agent_log("live: links %llx have settled after %.2f ms", (unsigned long long)l->links, (double)(now - l->written_ns) / 1e6);
	}
}

/* One look at what has changed. */
static void settle(struct context *c)
{
	if (c->live->rings)
		hear(c);
	lists_look(c);
	lists_give_turns(c);
	note_gone(c);
}

/* The programs, where the device has none yet. Of links, those that it has then; 0, or -ENOSPC: there is no room for some. */
static int place_programs(struct context *c, uint64_t *links, struct diag *d)
{
	int result = 0;
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		struct diag why = { 0 };
		if (!(*links >> i & 1))
			continue;
		int err = place_program(c, i, &why);
		note_why(i, err ? why.text : "");
		if (!err)
			continue;
		*links &= ~(UINT64_C(1) << i);
		if (err == -ENOSPC) {
			*d = why;
			result = err;
		} else {
			agent_log("live link %u: %s", i, why.text);
		}
	}
	return result;
}

static void keep_empty(struct changes *x)
{
	size_t n = 0;
	for (size_t i = 0; i < x->n; i++) {
		free(x->all[i].bytes);
		x->all[i].bytes = NULL;
		if (!x->all[i].links)
			x->all[n++] = x->all[i];
	}
	x->n = n;
}

/* What changes for these links, and the lists for it. Without room for lists what is new stays away, and what needs none at least goes. */
static int choose_lists(struct context *c, uint64_t *links, struct changes *x, struct diag *d)
{
	const uint64_t fresh = *links & ~c->live->links;
	compare(c, *links, x);
	if (!x->failed && write_lists(c, x, fresh != 0))
		return 0;
	int err = diag_set(d, ENOSPC, "lists of programs took the room; it is free again when the kernels that run have ended");
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (fresh >> i & 1)
			note_why(i, d->text);
	*links &= ~fresh;
	free_changes(x);
	*x = (struct changes){ 0 };
	compare(c, *links, x);
	if (x->failed || !write_lists(c, x, false))
		keep_empty(x);
	return err;
}

/* Links of lists that words lead to. */
static uint64_t led_to(const struct live *l)
{
	uint64_t links = 0;
	for (uint32_t k = 0; k < LIVE_LISTS; k++)
		links |= l->lists[k].words ? l->lists[k].links : 0;
	return links;
}

/* 0, or -errno; -ENOSPC: some stay away for want of room, and what could be changed is. */
static int publish(struct context *c, uint64_t links, struct diag *d)
{
	struct changes x = { 0 };
	int full = place_programs(c, &links, d), lists = choose_lists(c, &links, &x, d), err = 0;
	if (!write_words(c, &x) || !lists_close(c))
		err = -EIO;
	if (!err && x.n) {
		c->live->written_ns = now_ns();
		c->live->rings = 2;
		c->live->rest_wait = REST_AFTER_NS;
		c->live->rest_at = c->live->written_ns + REST_AFTER_NS;
		if (!bell_ring(c))
			err = -EIO;
	}
	if (!err) {
		c->live->links = links | led_to(c->live);
		c->live->ran |= links;
		atomic_store(&c->last_launch_ns, now_ns()); /* readers want to see it soon */
	}
	err = err ? err : full ? full : lists;
	agent_log("live: %zu words changed, links %llx, %d", x.n, (unsigned long long)links, err);
	free_changes(&x);
	return err;
}

/* Links taken away leave their row free for others: their programs must not be found under it again. */
static void forget_detached(struct live *l, uint64_t links)
{
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++)
		if (!(links >> i & 1))
			l->program[i] = 0;
	native_forget(l->native, ~links);
}

static void update(struct context *c)
{
	struct live *l = c->live;
	uint64_t generation = __atomic_load_n(&agent.shared->generation, __ATOMIC_ACQUIRE);
	uint32_t n_kernels = __atomic_load_n(&agent.shared->n_kernels, __ATOMIC_ACQUIRE);
	struct diag d = { 0 };
	CUcontext was;
	if (l->generation == generation && l->n_kernels == n_kernels && !l->again && !atomic_load(&l->full))
		return;
	if (!ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	uint64_t links = attached();
	int err = publish(c, links, &d);
	if (err == -ENOSPC && start_over_now(c))
		err = publish(c, links, &d);
	atomic_store(&l->full, err == -ENOSPC);
	REAL(cuCtxPopCurrent_v2)(&was);
	forget_detached(l, links);
	l->generation = generation;
	l->n_kernels = n_kernels;
	l->again = false;
	if (!l->rings)
		note_armed(c);
	note_gone(c);
}

/* A link that goes is drained when no guard runs it any more. */
bool live_settled(uint64_t generation)
{
	for (struct context *c = atomic_load(&agent.contexts); c; c = c->next)
		if (c->live && !atomic_load(&c->dead) && atomic_load(&c->live->settled) < generation)
			return false;
	return true;
}

/* Whether anything of --live is attached: guards, or programs for them. */
static bool anything_attached(void)
{
	for (uint32_t i = 0; i < SESSION_MAX_LINKS; i++) {
		const struct session_link *l = &agent.shared->links[i];
		if (__atomic_load_n(&l->state, __ATOMIC_ACQUIRE) == SESSION_LINK_ATTACHED && (l->live || !l->owner))
			return true;
	}
	return false;
}

struct native *live_native(const struct context *c)
{
	return c->live ? c->live->native : NULL;
}

/* Once what was published has settled, it is compiled. */
static void go_native(struct context *c)
{
	CUcontext was;
	if (!c->live->native || !ok(REAL(cuCtxPushCurrent_v2)(c->handle)))
		return;
	c->live->again |= native_step(c);
	REAL(cuCtxPopCurrent_v2)(&was);
	if (c->live->again)
		update(c);
}

/* Whether something has yet to be heard, or left. */
static bool waits(const struct live *l)
{
	uint64_t since;
	return l->rings || l->rest_ns || lists_held(l, &since);
}

static int next_look(const struct live *l)
{
	uint64_t since;
	if (l->rings || l->rest_ns)
		return SETTLE_MS;
	if (lists_held(l, &since))
		return now_ns() - since < HELD_NS ? SETTLE_MS : HELD_MS;
	return anything_attached() ? LOOK_MS : IDLE_MS;
}

int live_serve(struct context *c)
{
	if (!c->live || atomic_load(&c->dead))
		return INT_MAX;
	lock_take(&c->copying);
	uint64_t settled = c->live->settled;
	if (!atomic_load(&c->dead)) {
		CUcontext was;
		update(c);
		if (waits(c->live) && ok(REAL(cuCtxPushCurrent_v2)(c->handle))) {
			settle(c);
			REAL(cuCtxPopCurrent_v2)(&was);
		}
		if (!c->live->rings)
			go_native(c);
	}
	settled ^= c->live->settled;
	lock_drop(&c->copying);
	/* The program may not come to us while its kernel runs: say that we follow. */
	if (links_changed() || settled)
		variant_relink();
	return next_look(c->live);
}

/* -- start ------------------------------------------------------------------------ */

static uint64_t pool_size(const struct context *c)
{
	size_t all;
	if (!REAL(cuDeviceTotalMem_v2) || !ok(REAL(cuDeviceTotalMem_v2)(&all, c->device)) || all / POOL_SHARE < POOL_BYTES)
		return POOL_BYTES;
	return all / POOL_SHARE < POOL_MOST ? all / POOL_SHARE / LIVE_ALIGN * LIVE_ALIGN : POOL_MOST;
}

int live_prepare(struct context *c, CUdeviceptr image, struct diag *d)
{
	struct live *l = calloc(1, sizeof(*l));
	if (!l)
		return diag_set(d, ENOMEM, "out of memory");
	l->value = image + MAP_IMAGE_HEADER;
	l->code_bytes = LIVE_CODE_BYTES;
	const char *room = getenv("EGPU_LIVE_ROOM"); /* tests have little */
	if (room && strtoull(room, NULL, 0) < LIVE_CODE_BYTES)
		l->code_bytes = strtoull(room, NULL, 0) / LIVE_ALIGN * LIVE_ALIGN;
	/* Before the doorbell is loaded: with code the driver empties the instruction caches of what lay where this is. */
	for (uint32_t i = 0; i < EBPF_MAX_MAPS; i++)
		if (agent.shared->maps[i].live == LIVE_TIER_NATIVE)
			l->native = native_prepare();
	int err = bell_load(l, c->cc, d);
	l->pool_bytes = pool_size(c);
	if (!err && !ok(REAL(cuMemAlloc_v2)(&l->pool, l->pool_bytes)))
		err = diag_set(d, ENOMEM, "no device memory for the maps of live programs");
	if (err) {
		if (l->bell_stream)
			REAL(cuStreamDestroy_v2)(l->bell_stream);
		if (l->bell_module)
			REAL(cuModuleUnload)(l->bell_module);
		native_free(l->native);
		free(l);
		return err;
	}
	c->live = l;
	update(c);
	return 0;
}
