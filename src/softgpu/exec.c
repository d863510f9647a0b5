/* exec.c - blocks, warps and paths: which lanes run next.
 *
 * A warp holds up to 32 paths: disjoint sets of lanes, each with a pc and a frame. The path with
 * the deepest frame and then the smallest pc runs, until its pc reaches that of another path in the
 * same frame; there they merge. That rule reconverges structured code at its join points. It is not
 * fair, so a path that has run long (or spun) while others were ready stands back for the one that
 * waited longest: a lane that spins never keeps the lane it waits for from running.
 */
#include "softgpu/internal.h"

#include <stdio.h>
#include <time.h>
#include <stdlib.h>
#include <string.h>

#define SLICE 4096          /* fuel of a warp before the next warp of its block runs */
#define PATIENCE (1u << 18) /* fuel of a path while others are ready */
#define ROTATE_SLICE 128    /* fuel of a path that runs out of turn */
#define MAX_TURNS 10	    /* that is doubled so often, while lanes wait again: what they wait for may take long */
#define SPIN_LIMIT 256      /* weight of likely spins of a path before others get their turn */
#define BLOCK_BUDGET (1 << 20)
#define SPIN_COST 512 /* of a block's budget: blocks that spin yield their worker sooner */
#define BEHIND_SLICES 64 /* of a warp in shuffled order, until some of its lanes are left behind */
#define BEHIND_COST 64	  /* of a block's budget: a look at a warp whose lanes are all left behind */

uint64_t sg_random(uint64_t *state)
{
	uint64_t x = *state ? *state : 1;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* -- frames ------------------------------------------------------------------ */

static size_t align64(size_t n)
{
	return (n + 63) & ~(size_t)63;
}

struct sg_frame *sg_frame_new(
	struct sg_warp *w, const struct sg_func *f, struct sg_frame *parent, uint32_t mask)
{
	size_t head = align64(sizeof(struct sg_frame));
	size_t local = align64((size_t)f->local_bytes * 32),
	       param = align64((size_t)f->param_bytes * 32);
	size_t bytes = head + f->reg_bytes + local + param;
	struct sg_device *dev = w->block->grid->dev;
	struct sg_frame *fr = w->spare;
	uint32_t base = parent ? parent->local_base + parent->func->local_bytes : 0;

	if ((parent && parent->depth + 1 >= SG_MAX_DEPTH) ||
		(uint64_t)base + f->local_bytes > SG_MAX_LOCAL)
		return NULL;
	base = (base + 15) & ~15u;
	if (fr && fr->bytes >= bytes) {
		w->spare = fr->parent;
	} else {
		if (atomic_fetch_add(&dev->frame_bytes, bytes) + bytes > SG_MAX_FRAMES ||
			!(fr = aligned_alloc(64, bytes))) {
			atomic_fetch_sub(&dev->frame_bytes, bytes);
			return NULL;
		}
		fr->bytes = bytes;
	}
	fr->parent = parent;
	fr->func = f;
	fr->call = NULL;
	fr->marks = NULL;
	fr->live = mask;
	fr->depth = parent ? parent->depth + 1 : 0;
	fr->local_base = base;
	fr->regs = (uint8_t *)fr + head;
	fr->local = fr->regs + f->reg_bytes;
	fr->param = fr->local + local;
	memset(fr->regs, 0, bytes - head);
	return fr;
}

static void frame_free(struct sg_warp *w, struct sg_frame *f)
{
	free(f->marks);
	atomic_fetch_sub(&w->block->grid->dev->frame_bytes, f->bytes);
	free(f);
}

void sg_frame_drop(struct sg_warp *w, struct sg_frame *f, uint32_t mask)
{
	f->live &= ~mask;
	sg_stack_leave(w, f, mask);
	if (f->live)
		return;
	/* Keep a few for the next calls. */
	if (!w->spare || w->spare->bytes < f->bytes) {
		if (w->spare)
			frame_free(w, w->spare);
		f->parent = NULL;
		w->spare = f;
	} else {
		frame_free(w, f);
	}
}

/* -- paths ------------------------------------------------------------------- */

static void load_path(struct sg_warp *w, int32_t i)
{
	struct sg_path *p = &w->paths[i];
	w->cur = i;
	w->pc = p->pc;
	w->mask = p->mask;
	w->frame = p->frame;
	w->code = p->frame->func->module->code;
	sg_use(w, p->frame);
	p->stamp = ++w->clock;
}

static void save_path(struct sg_warp *w)
{
	if (w->cur < 0)
		return;
	struct sg_path *p = &w->paths[w->cur];
	p->pc = w->pc;
	p->mask = w->mask;
	p->frame = w->frame;
}

/* Joins ready paths of equal frame and pc, and drops empty ones. */
static void merge_paths(struct sg_warp *w)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < w->n_paths; i++) {
		struct sg_path *p = &w->paths[i];
		bool merged = !p->mask;
		for (uint32_t j = 0; j < n && !merged; j++) {
			struct sg_path *q = &w->paths[j];
			if (q->pc != p->pc || q->frame != p->frame || q->state != p->state ||
				q->state == SG_WAIT_BAR || q->bar_done || p->bar_done || q->until || p->until)
				continue;
			q->mask |= p->mask;
			if (p->stamp < q->stamp)
				q->stamp = p->stamp;
			merged = true;
		}
		if (!merged)
			w->paths[n++] = *p;
	}
	w->n_paths = n;
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool can_run(struct sg_path *p)
{
	if (p->state != SG_READY)
		return false;
	if (p->until && now_ns() >= p->until)
		p->until = 0;
	return !p->until;
}

static bool before(const struct sg_warp *w, const struct sg_path *a, const struct sg_path *b)
{
	if (w->rotate)
		return a->stamp < b->stamp;
	if (a->frame->depth != b->frame->depth)
		return a->frame->depth > b->frame->depth;
	return a->pc < b->pc;
}

/* Chooses the path that runs next; cur is -1 when every path waits. */
static void select_path(struct sg_warp *w)
{
	save_path(w);
	if (w->n_paths > 1 || !w->mask)
		merge_paths(w);
	int32_t best = -1;
	uint32_t ready = 0;
	for (uint32_t i = 0; i < w->n_paths; i++) {
		if (!can_run(&w->paths[i]))
			continue;
		ready++;
		if (best < 0 || before(w, &w->paths[i], &w->paths[best]))
			best = (int32_t)i;
	}
	w->cur = best;
	w->stop_pc = SG_NO_PC;
	if (best < 0)
		return;
	if (ready > 1 && w->block->random && sg_random(&w->block->random) % 8 == 0) {
		do
			best = (int32_t)(sg_random(&w->block->random) % w->n_paths);
		while (!can_run(&w->paths[best]));
	}
	load_path(w, best);
	for (uint32_t i = 0; i < w->n_paths && !w->rotate; i++) {
		const struct sg_path *p = &w->paths[i];
		if ((int32_t)i != best && p->frame == w->frame && p->state == SG_READY &&
			p->pc > w->pc && p->pc < w->stop_pc)
			w->stop_pc = p->pc;
	}
}

struct sg_path *sg_split(struct sg_warp *w, uint32_t mask, uint32_t pc)
{
	struct sg_path *p = &w->paths[w->n_paths++];
	*p = (struct sg_path){ .pc = pc,
		.mask = mask,
		.frame = w->frame,
		.state = SG_READY,
		.stamp = w->paths[w->cur].stamp };
	w->mask &= ~mask;
	sg_resched(w);
	return p;
}

struct sg_path *sg_wait(struct sg_warp *w, uint32_t mask, enum sg_state state)
{
	uint32_t pc = w->pc - 1;
	struct sg_path *p;
	if (mask == w->mask) {
		w->pc = pc;
		save_path(w);
		p = &w->paths[w->cur];
		w->cur = -1;
	} else {
		p = sg_split(w, mask, pc);
	}
	p->state = state;
	sg_resched(w);
	return p;
}

/* Threads that have ended are not waited for by the cluster's barrier. */
static void leave_cluster(struct sg_cluster *c, uint32_t threads)
{
	pthread_mutex_lock(&c->lock);
	c->threads -= threads;
	if (c->arrived && c->arrived >= c->threads) {
		c->arrived = 0;
		c->phase++;
	}
	pthread_mutex_unlock(&c->lock);
}

void sg_lanes_exit(struct sg_warp *w, uint32_t mask)
{
	for (struct sg_frame *f = w->frame, *parent; f; f = parent) {
		parent = f->parent;
		sg_frame_drop(w, f, mask);
	}
	if (w->block->cluster)
		leave_cluster(w->block->cluster, (uint32_t)__builtin_popcount(mask));
	w->live &= ~mask;
	w->mask &= ~mask;
	save_path(w);
	if (!w->mask) {
		w->paths[w->cur].mask = 0;
		w->cur = -1;
	}
	if (!w->live)
		w->block->live_warps--;
	sg_bar_recheck(w);
	if (w->live)
		sg_warp_sync_check(w);
	sg_resched(w);
}

void sg_spin(struct sg_warp *w, uint32_t weight)
{
	w->spins += weight;
	if (w->spins >= SPIN_LIMIT)
		w->fuel = 0;
}

/* -- the loop ---------------------------------------------------------------- */

static void run_fuel(struct sg_warp *w)
{
	while (w->fuel > 0) {
		const struct sg_insn *in = &w->code[w->pc];
		uint32_t mask = w->mask;
		w->fuel--;
		w->pc++;
		if (in->guard) {
			uint32_t p = *(const uint32_t *)(w->base[0] + in->guard - 1);
			mask &= in->flags & SG_GUARD_NOT ? ~p : p;
		}
		if (mask)
			in->fn(w, in, mask);
		if (w->pc >= w->stop_pc) {
			if (w->failed)
				return;
			select_path(w);
			if (w->cur < 0)
				return;
		}
	}
}

static uint32_t count_ready(const struct sg_warp *w)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < w->n_paths; i++)
		n += w->paths[i].mask && w->paths[i].state == SG_READY;
	return n;
}

/* A GPU does not say when it runs the lanes of a warp that has come apart: with behind_ms one lane, or all that go together, stand still for a while
 * where they are. */
static void leave_behind(struct sg_warp *w)
{
	struct sg_block *b = w->block;
	uint32_t ms = b->grid->dev->config.behind_ms, left = w->mask;
	struct sg_path *p = &w->paths[w->cur];
	if (!ms || !b->random || sg_random(&b->random) % BEHIND_SLICES)
		return;
	if ((left & (left - 1)) && !p->bar_done && sg_random(&b->random) % 2) {
		for (uint32_t n = (uint32_t)(sg_random(&b->random) % (uint32_t)__builtin_popcount(left)); n; n--)
			left &= left - 1;
		p = sg_split(w, left & -left, w->pc);
	} else {
		save_path(w);
		w->cur = -1;
	}
	p->until = now_ns() + ms * UINT64_C(1000000);
}

/* Runs a warp for one slice and charges the block. */
static void warp_run(struct sg_warp *w)
{
	int32_t slice = w->rotate ? ROTATE_SLICE << w->turns : SLICE;
	if (w->block->random)
		slice = 1 + (int32_t)(sg_random(&w->block->random) % 64);
	w->spins = 0;
	w->fuel = slice;
	if (w->cur < 0 || w->rotate || w->n_paths > 1)
		select_path(w);
	bool rotated = w->rotate;
	w->rotate = false;
	if (w->cur >= 0)
		run_fuel(w);
	else
		w->block->budget -= BEHIND_COST;
	if (w->cur >= 0 && !w->failed)
		leave_behind(w);
	int64_t used = slice - (w->fuel > 0 ? w->fuel : 0);
	w->block->budget -= used + (int64_t)w->spins * SPIN_COST;
	if (w->failed || count_ready(w) < 2) {
		w->patience = 0;
		w->turns = 0;
		return;
	}
	w->patience += (uint32_t)used;
	/* One turn out of order for every other path, then the usual order again. */
	if (w->spins >= SPIN_LIMIT || w->patience >= PATIENCE || (rotated && w->block->random)) {
		w->patience = 0;
		w->rotate = true;
		w->turns += w->turns < MAX_TURNS;
	}
}

static bool warp_ready(const struct sg_warp *w)
{
	if (!w->live)
		return false;
	for (uint32_t i = 0; i < w->n_paths; i++)
		if (w->paths[i].state == SG_READY && w->paths[i].mask)
			return true;
	return false;
}

/* Says for each warp what its lanes wait for; the block can never go on. */
static void report_deadlock(struct sg_block *b)
{
	struct buf out = { 0 };
	const char *name = b->grid->name;
	buf_printf(&out, "softgpu: kernel %s: deadlock in block (%u,%u,%u):", name, b->id[0],
		b->id[1], b->id[2]);
	for (uint32_t i = 0; i < b->n_warps && out.len < 2000; i++) {
		struct sg_warp *w = &b->warps[i];
		for (uint32_t j = 0; j < w->n_paths; j++) {
			const struct sg_path *p = &w->paths[j];
			if (!p->mask)
				continue;
			const struct sg_insn *in = sg_path_insn(p);
			buf_printf(&out, " warp %u lanes 0x%08x wait at PTX line %u (%s);", i,
				p->mask, in->line, in->opcode);
		}
	}
	if (!out.failed)
		sg_grid_fail(b->grid, CUDA_ERROR_LAUNCH_FAILED, out.data);
	else
		sg_grid_fail(b->grid, CUDA_ERROR_LAUNCH_FAILED, "softgpu: deadlock");
	buf_free(&out);
}

enum sg_ran sg_block_run(struct sg_block *b)
{
	b->budget = b->random ? 256 : BLOCK_BUDGET;
	uint32_t idle = 0;
	while (b->live_warps && b->budget > 0) {
		if (atomic_load_explicit(&b->grid->error, memory_order_relaxed))
			return SG_RAN_FAILED;
		uint32_t i = b->next_warp++ % b->n_warps;
		if (b->random)
			i = (uint32_t)(sg_random(&b->random) % b->n_warps);
		struct sg_warp *w = &b->warps[i];
		if (!warp_ready(w)) {
			/* In shuffled order a round does not visit every warp: look again in order.
			 */
			if (++idle < b->n_warps)
				continue;
			idle = 0;
			bool any = false;
			for (uint32_t j = 0; j < b->n_warps; j++)
				any |= warp_ready(&b->warps[j]);
			if (any)
				continue;
			report_deadlock(b);
			return SG_RAN_FAILED;
		}
		idle = 0;
		warp_run(w);
		if (w->failed)
			return SG_RAN_FAILED;
	}
	return b->live_warps ? SG_RAN_MORE : SG_RAN_ENDED;
}

/* -- blocks ------------------------------------------------------------------ */

static void fill(uint32_t *lanes, uint32_t v)
{
	for (int i = 0; i < 32; i++)
		lanes[i] = v;
}

static void set_lane_specials(struct sg_block *b)
{
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t eq = 1u << i, lt = eq - 1;
		b->special[SG_B_LANEID][i] = i;
		b->special[SG_B_LM_EQ][i] = eq;
		b->special[SG_B_LM_LT][i] = lt;
		b->special[SG_B_LM_LE][i] = lt | eq;
		b->special[SG_B_LM_GE][i] = ~lt;
		b->special[SG_B_LM_GT][i] = ~(lt | eq);
	}
}

static void set_cluster_specials(struct sg_block *b)
{
	const struct sg_launch *l = &b->grid->launch;
	bool explicit_cluster = l->cluster[0] != 0;
	for (int k = 0; k < 3; k++) {
		uint32_t size = explicit_cluster ? l->cluster[k] : 1;
		fill(b->special[SG_B_CLUSTERX + k], b->id[k] / size);
		fill(b->special[SG_B_NCLUSTERX + k], (l->grid[k] + size - 1) / size);
		fill(b->special[SG_B_CCTAIDX + k], b->id[k] % size);
		fill(b->special[SG_B_CNCTAIDX + k], size);
	}
	fill(b->special[SG_B_CRANK], b->rank);
	fill(b->special[SG_B_CNRANK], b->cluster ? b->cluster->n_blocks : 1);
	b->special[SG_B_EXPLICIT_CLUSTER][0] = explicit_cluster ? SG_FULL : 0;
}

static void set_specials(struct sg_block *b)
{
	const struct sg_grid *g = b->grid;
	for (int k = 0; k < 3; k++) {
		fill(b->special[SG_B_NTIDX + k], g->launch.block[k]);
		fill(b->special[SG_B_CTAIDX + k], b->id[k]);
		fill(b->special[SG_B_NCTAIDX + k], g->launch.grid[k]);
	}
	set_lane_specials(b);
	set_cluster_specials(b);
	fill(b->special[SG_B_NWARPID], b->n_warps);
	fill(b->special[SG_B_SMID], b->sm);
	fill(b->special[SG_B_NSMID], g->dev->config.n_sms);
	for (int i = 0; i < 32; i++)
		memcpy((uint8_t *)b->special[SG_B_GRIDID] + i * 8, &g->id, 8);
	fill(b->special[SG_B_DYN_SMEM], g->launch.dynamic_shared_bytes);
	fill(b->special[SG_B_TOTAL_SMEM], g->shared_bytes);
	fill(b->special[SG_B_ENVREG1], (uint32_t)(g->workspace >> 32));
	fill(b->special[SG_B_ENVREG2], (uint32_t)g->workspace);
}

static bool init_warp(struct sg_block *b, uint32_t index)
{
	struct sg_grid *g = b->grid;
	struct sg_warp *w = &b->warps[index];
	const uint32_t *dim = g->launch.block;
	uint32_t first = index * 32, n = g->threads - first < 32 ? g->threads - first : 32;

	w->block = b;
	w->mem = &g->dev->mem;
	w->code = g->kernel->module->code;
	w->index = index;
	w->check = b->check != NULL;
	w->live = n == 32 ? SG_FULL : (1u << n) - 1;
	w->base[1] = g->kernel->module->consts;
	w->base[2] = (uint8_t *)w->special;
	w->base[3] = (uint8_t *)b->special;
	for (uint32_t i = 0; i < 32; i++) {
		uint32_t t = first + i;
		w->special[SG_S_TIDX][i] = t % dim[0];
		w->special[SG_S_TIDY][i] = t / dim[0] % dim[1];
		w->special[SG_S_TIDZ][i] = t / dim[0] / dim[1];
		w->special[SG_S_WARPID][i] = index;
	}
	struct sg_frame *f = sg_frame_new(w, g->kernel->func, NULL, w->live);
	if (!f)
		return false;
	w->paths[0] = (struct sg_path){ .pc = g->kernel->func->pc, .mask = w->live, .frame = f };
	w->n_paths = 1;
	w->cur = -1;
	return true;
}

struct sg_block *sg_block_new(
	struct sg_grid *g, uint64_t linear, uint32_t sm, struct sg_cluster *cluster, uint32_t rank)
{
	uint32_t n_warps = (g->threads + 31) / 32;
	struct sg_block *b = aligned_alloc(64, align64(sizeof(*b)));
	if (!b)
		return NULL;
	memset(b, 0, sizeof(*b));
	b->grid = g;
	b->sm = sm;
	b->cluster = cluster;
	b->rank = rank;
	b->id[0] = (uint32_t)(linear % g->launch.grid[0]);
	b->id[1] = (uint32_t)(linear / g->launch.grid[0] % g->launch.grid[1]);
	b->id[2] = (uint32_t)(linear / g->launch.grid[0] / g->launch.grid[1]);
	b->warps = aligned_alloc(64, n_warps * sizeof(*b->warps));
	b->shared = aligned_alloc(64, align64(g->shared_bytes + 1));
	b->shared_bytes = g->shared_bytes;
	if (!b->warps || !b->shared) {
		sg_block_free(b);
		return NULL;
	}
	memset(b->warps, 0, n_warps * sizeof(*b->warps));
	memset(b->shared, 0, g->shared_bytes);
	b->n_warps = b->live_warps = n_warps;
	if (g->dev->config.shuffle_seed)
		b->random = linear * 0x9e3779b97f4a7c15ull + g->dev->config.shuffle_seed;
	set_specials(b);
	if (g->dev->check && !sg_check_block_new(b)) {
		sg_block_free(b);
		return NULL;
	}
	for (uint32_t i = 0; i < n_warps; i++) {
		if (!init_warp(b, i)) {
			sg_block_free(b);
			return NULL;
		}
	}
	return b;
}

static void free_frames(struct sg_warp *w)
{
	for (uint32_t i = 0; i < w->n_paths; i++) {
		uint32_t mask = w->paths[i].mask;
		for (struct sg_frame *f = w->paths[i].frame, *parent; mask && f; f = parent) {
			parent = f->parent;
			f->live &= ~mask;
			if (!f->live)
				frame_free(w, f);
		}
	}
	if (w->spare)
		frame_free(w, w->spare);
	sg_stack_free(w);
}

void sg_block_free(struct sg_block *b)
{
	if (!b)
		return;
	for (uint32_t i = 0; i < b->n_warps && b->warps; i++) {
		if (!b->warps[i].block)
			continue;
		if (b->warps[i].live)
			save_path(&b->warps[i]);
		free_frames(&b->warps[i]);
	}
	sg_check_block_free(b);
	free(b->warps);
	free(b->shared);
	free(b);
}

/* -- faults ------------------------------------------------------------------ */

void sg_grid_fail(struct sg_grid *g, CUresult error, const char *line)
{
	int none = 0;
	if (atomic_compare_exchange_strong(&g->error, &none, (int)error))
		fprintf(stderr, "%s\n", line);
}

void sg_fault(
	struct sg_warp *w, const struct sg_insn *in, CUresult error, int lane, const char *fmt, ...)
{
	struct sg_block *b = w->block;
	char what[256], line[1024], where[96] = "";
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (lane >= 0)
		snprintf(where, sizeof(where), " by thread (%u,%u,%u)", w->special[SG_S_TIDX][lane],
			w->special[SG_S_TIDY][lane], w->special[SG_S_TIDZ][lane]);
	snprintf(line, sizeof(line),
		"softgpu: kernel %s: PTX line %u: %s: %s%s %s block (%u,%u,%u)%s%s", b->grid->name,
		in->line, in->opcode, what, where, lane >= 0 ? "of" : "in", b->id[0], b->id[1],
		b->id[2], w->frame->parent ? " in function " : "",
		w->frame->parent ? w->frame->func->name : "");
	sg_grid_fail(b->grid, error, line);
	w->failed = true;
	sg_resched(w);
}
