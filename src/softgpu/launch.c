/* launch.c - grids: blocks become resident on virtual multiprocessors and take turns on the
 * workers.
 *
 * A block that has used up its turn goes to the end of the queue; workers take old and new blocks
 * alternately. So every resident block of every grid runs again and again, whatever it waits for:
 * another block, another grid, or the host.
 */
#include "softgpu/internal.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct sg_limits limits[] = {
	{ 75, 1024, 16, 64 << 10, 64 << 10 },
	{ 80, 2048, 32, 164 << 10, 163 << 10 },
	{ 86, 1536, 16, 100 << 10, 99 << 10 },
	{ 87, 1536, 16, 164 << 10, 163 << 10 },
	{ 89, 1536, 24, 100 << 10, 99 << 10 },
	{ 90, 2048, 32, 228 << 10, 227 << 10 },
};

const struct sg_limits *sg_limits_of(uint32_t sm)
{
	const struct sg_limits *best = &limits[0];
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		if (limits[i].sm <= sm)
			best = &limits[i];
	return best;
}

/* Shared memory that a block takes from its multiprocessor; 1 KiB is the system's from sm_80 on. */
static uint32_t shared_cost(const struct sg_device *dev, uint32_t bytes)
{
	return ((bytes + 127) & ~127u) + (dev->config.sm >= 80 ? 1024 : 0);
}

static uint32_t round_warps(uint32_t threads)
{
	return (threads + 31) & ~31u;
}

static uint32_t total_shared(const struct sg_kernel *k, uint32_t dynamic)
{
	uint64_t base = k->info.static_shared_bytes, align = k->dynamic_align;
	uint64_t total = dynamic ? (base + align - 1) / align * align + dynamic : base;
	return total > UINT32_MAX ? UINT32_MAX : (uint32_t)total;
}

uint32_t sg_occupancy(const struct sg_device *dev, const struct sg_kernel *k, uint32_t threads,
	uint32_t dynamic_shared_bytes)
{
	const struct sg_limits *l = dev->limits;
	uint32_t shared = total_shared(k, dynamic_shared_bytes);
	if (!threads || threads > k->info.max_threads || shared > l->block_shared)
		return 0;
	uint32_t n = l->threads / round_warps(threads), cost = shared_cost(dev, shared);
	n = n < l->blocks ? n : l->blocks;
	if (cost && l->shared / cost < n)
		n = l->shared / cost;
	return n;
}

/* -- places on multiprocessors ------------------------------------------------ */

static bool fits(
	const struct sg_device *dev, const struct sg_grid *g, const struct sg_sm *sm, uint32_t n)
{
	const struct sg_limits *l = dev->limits;
	return sm->threads + n * round_warps(g->threads) <= l->threads &&
	       sm->blocks + n <= l->blocks &&
	       sm->shared + n * shared_cost(dev, g->shared_bytes) <= l->shared;
}

static void occupy(struct sg_device *dev, const struct sg_grid *g, struct sg_sm *sm)
{
	sm->threads += round_warps(g->threads);
	sm->blocks++;
	sm->shared += shared_cost(dev, g->shared_bytes);
}

static void vacate(struct sg_device *dev, const struct sg_grid *g, struct sg_sm *sm)
{
	sm->threads -= round_warps(g->threads);
	sm->blocks--;
	sm->shared -= shared_cost(dev, g->shared_bytes);
}

/* The emptiest multiprocessor with room for one block, occupied; -1: none. Of those that are as empty the one behind the last of the
 * same grid: blocks that end at once come to all, as on a device that runs more of them at a time. */
static int take_sm(struct sg_device *dev, struct sg_grid *g)
{
	uint32_t n = dev->config.n_sms;
	int best = -1;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t i = (g->next_sm + k) % n;
		if (fits(dev, g, &dev->sms[i], 1) &&
			(best < 0 || dev->sms[i].threads < dev->sms[best].threads))
			best = (int)i;
	}
	if (best >= 0) {
		g->next_sm = ((uint32_t)best + 1) % n;
		occupy(dev, g, &dev->sms[best]);
	}
	return best;
}

/* Places for n blocks, all or none. */
static bool take_sms(struct sg_device *dev, struct sg_grid *g, uint32_t *sm, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		int at = take_sm(dev, g);
		if (at < 0) {
			while (i)
				vacate(dev, g, &dev->sms[sm[--i]]);
			return false;
		}
		sm[i] = (uint32_t)at;
	}
	return true;
}

bool sg_has_room(struct sg_device *dev, uint32_t threads)
{
	const struct sg_grid block = { .threads = threads };
	bool room = false;
	pthread_mutex_lock(&dev->lock);
	for (uint32_t i = 0; i < dev->config.n_sms && !room; i++)
		room = fits(dev, &block, &dev->sms[i], 1);
	pthread_mutex_unlock(&dev->lock);
	return room;
}

/* -- blocks that start ---------------------------------------------------------- */

struct start {
	struct sg_grid *grid;
	uint64_t unit;
	uint32_t sm[16];
};

/* Reserves the next unit of a grid; false when there is no room. */
static bool reserve(struct sg_device *dev, struct sg_grid *g, struct start *out)
{
	if (g->launch.cooperative) {
		memcpy(out->sm, g->sm_of_unit + g->next_unit * g->unit_blocks,
			g->unit_blocks * sizeof(*out->sm));
	} else if (!take_sms(dev, g, out->sm, g->unit_blocks)) {
		return false;
	}
	out->grid = g;
	out->unit = g->next_unit++;
	g->n_resident += g->unit_blocks;
	dev->turn = g->id;
	return true;
}

/* A cooperative grid takes places for all its blocks at once. */
static bool admit(struct sg_device *dev, struct sg_grid *g)
{
	if (!g->admitted)
		g->admitted = take_sms(dev, g, g->sm_of_unit, g->n_units * g->unit_blocks);
	return g->admitted;
}

static bool has_new(const struct sg_grid *g)
{
	return g->next_unit < g->n_units && !g->error;
}

/* The next new unit, from the grids in turn. Grids behind a cooperative one that waits for room
 * start nothing, so that the room comes. */
static bool next_start(struct sg_device *dev, struct start *out)
{
	struct sg_grid *end = NULL;
	for (struct sg_grid *g = dev->grids; g; g = g->next) {
		if (has_new(g) && g->launch.cooperative && !admit(dev, g)) {
			end = g;
			break;
		}
	}
	for (int round = 0; round < 2; round++)
		for (struct sg_grid *g = dev->grids; g != end; g = g->next)
			if ((round || g->id > dev->turn) && has_new(g) && reserve(dev, g, out))
				return true;
	return false;
}

static uint64_t linear_id(const struct sg_grid *g, uint64_t unit, uint32_t rank)
{
	const uint32_t *grid = g->launch.grid, *c = g->launch.cluster;
	if (!c[0])
		return unit;
	uint64_t nx = grid[0] / c[0], ny = grid[1] / c[1];
	uint64_t x = unit % nx * c[0] + rank % c[0];
	uint64_t y = unit / nx % ny * c[1] + rank / c[0] % c[1];
	uint64_t z = unit / nx / ny * c[2] + rank / c[0] / c[1];
	return x + grid[0] * (y + grid[1] * z);
}

static void push_ready(struct sg_device *dev, struct sg_block *b)
{
	b->next = NULL;
	if (dev->ready_last)
		dev->ready_last->next = b;
	else
		dev->ready = b;
	dev->ready_last = b;
}

static struct sg_block *pop_ready(struct sg_device *dev)
{
	struct sg_block *b = dev->ready;
	if (!b)
		return NULL;
	/* In shuffled order the head often steps back. */
	if (dev->random && b->next && sg_random(&dev->random) % 2) {
		struct sg_block *second = b->next;
		b->next = second->next;
		if (dev->ready_last == second)
			dev->ready_last = b;
		return second;
	}
	dev->ready = b->next;
	if (!dev->ready)
		dev->ready_last = NULL;
	return b;
}

static void block_gone(struct sg_device *dev, struct sg_grid *g, uint32_t sm)
{
	vacate(dev, g, &dev->sms[sm]);
	g->n_resident--;
}

static bool make_blocks(const struct start *s, struct sg_cluster *c, struct sg_block **blocks)
{
	struct sg_grid *g = s->grid;
	for (uint32_t i = 0; i < g->unit_blocks; i++) {
		blocks[i] = sg_block_new(g, linear_id(g, s->unit, i), s->sm[i], c, i);
		if (!blocks[i]) {
			while (i)
				sg_block_free(blocks[--i]);
			return false;
		}
	}
	return true;
}

static struct sg_cluster *new_cluster(const struct sg_grid *g)
{
	struct sg_cluster *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->n_blocks = g->unit_blocks;
	c->threads = g->unit_blocks * g->threads;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

static void free_cluster(struct sg_cluster *c)
{
	if (!c)
		return;
	pthread_mutex_destroy(&c->lock);
	free(c);
}

/* Creates the reserved blocks, without the lock; the first is returned, the others are queued. */
static struct sg_block *start_blocks(struct sg_device *dev, const struct start *s)
{
	struct sg_grid *g = s->grid;
	struct sg_block *blocks[16];
	pthread_mutex_unlock(&dev->lock);
	struct sg_cluster *c = g->launch.cluster[0] ? new_cluster(g) : NULL;
	bool ok = (c || !g->launch.cluster[0]) && make_blocks(s, c, blocks);
	if (!ok) {
		char line[512];
		snprintf(line, sizeof(line),
			"softgpu: kernel %s: out of memory for registers and local memory",
			g->name);
		sg_grid_fail(g, CUDA_ERROR_OUT_OF_MEMORY, line);
		free_cluster(c);
	} else if (c) {
		memcpy(c->blocks, blocks, g->unit_blocks * sizeof(*blocks));
	}
	pthread_mutex_lock(&dev->lock);
	if (!ok) {
		for (uint32_t i = 0; i < g->unit_blocks; i++)
			block_gone(dev, g, s->sm[i]);
		return NULL;
	}
	for (uint32_t i = 1; i < g->unit_blocks; i++)
		push_ready(dev, blocks[i]);
	return blocks[0];
}

/* -- ends ---------------------------------------------------------------------- */

static void grid_free(struct sg_grid *g)
{
	if (g->workspace)
		sg_mem_free(g->dev, g->workspace);
	buf_free(&g->output);
	pthread_mutex_destroy(&g->output_lock);
	sg_code_free(g);
	pthread_mutex_destroy(&g->foreign_lock);
	free(g->sm_of_unit);
	free(g->params);
	free(g->name);
	free(g);
}

/* Calls back and frees a grid none of whose blocks is left. Called with the lock, which is dropped
 * meanwhile. */
static void maybe_finish(struct sg_device *dev, struct sg_grid *g)
{
	if (g->n_resident || has_new(g))
		return;
	struct sg_grid **p = &dev->grids;
	while (*p && *p != g)
		p = &(*p)->next;
	if (!*p)
		return;
	*p = g->next;
	/* Places that a failed cooperative grid did not come to use. */
	for (uint64_t i = g->next_unit * g->unit_blocks;
		g->admitted && i < g->n_units * g->unit_blocks; i++)
		vacate(dev, g, &dev->sms[g->sm_of_unit[i]]);
	dev->n_finishing++;
	pthread_mutex_unlock(&dev->lock);
	sg_output_flush(g);
	sg_grid_done done = g->done;
	void *arg = g->arg;
	CUresult error = (CUresult)g->error;
	grid_free(g);
	if (done)
		done(arg, error);
	pthread_mutex_lock(&dev->lock);
	dev->n_finishing--;
	pthread_cond_broadcast(&dev->idle);
}

static void end_block(struct sg_device *dev, struct sg_block *b)
{
	struct sg_grid *g = b->grid;
	struct sg_cluster *c = b->cluster;
	block_gone(dev, g, b->sm);
	if (!c) {
		sg_block_free(b);
	} else if (++c->n_ended == c->n_blocks) {
		for (uint32_t i = 0; i < c->n_blocks; i++)
			sg_block_free(c->blocks[i]);
		free_cluster(c);
	}
	pthread_cond_broadcast(&dev->work);
	maybe_finish(dev, g);
}

/* A block to run, or NULL. Called with the lock. */
static struct sg_block *next_block(struct sg_device *dev)
{
	struct start s;
	bool crowded =
		atomic_load_explicit(&dev->frame_bytes, memory_order_relaxed) > SG_MANY_FRAMES;
	if (dev->ready && ++dev->picks % (crowded ? 16 : 2))
		return pop_ready(dev);
	while (next_start(dev, &s)) {
		struct sg_block *b = start_blocks(dev, &s);
		if (b)
			return b;
		maybe_finish(dev, s.grid);
	}
	return pop_ready(dev);
}

static void *work(void *arg)
{
	struct sg_device *dev = arg;
	pthread_mutex_lock(&dev->lock);
	while (!dev->stop) {
		struct sg_block *b = next_block(dev);
		if (!b) {
			pthread_cond_wait(&dev->work, &dev->lock);
			continue;
		}
		if (dev->ready)
			pthread_cond_signal(&dev->work);
		pthread_mutex_unlock(&dev->lock);
		enum sg_ran ran = sg_block_run(b);
		pthread_mutex_lock(&dev->lock);
		if (ran == SG_RAN_MORE)
			push_ready(dev, b);
		else
			end_block(dev, b);
	}
	pthread_mutex_unlock(&dev->lock);
	return NULL;
}

/* Workers are started with the first grid. They take no signals: those are the application's. */
static void start_workers(struct sg_device *dev)
{
	sigset_t all, old;
	uint32_t want = dev->config.n_workers;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	while (dev->n_workers < want &&
		!pthread_create(&dev->workers[dev->n_workers], NULL, work, dev))
		pthread_setname_np(dev->workers[dev->n_workers++], "softgpu");
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* -- starting a grid ------------------------------------------------------------- */

static CUresult check_shape(
	const struct sg_device *dev, const struct sg_launch *l, uint32_t cluster[3])
{
	const struct sg_kernel_info *info = &l->kernel->info;
	uint64_t threads = (uint64_t)l->block[0] * l->block[1] * l->block[2];
	if (!l->grid[0] || !l->grid[1] || !l->grid[2] || l->grid[0] > INT32_MAX ||
		l->grid[1] > 65535 || l->grid[2] > 65535)
		return CUDA_ERROR_INVALID_VALUE;
	if (!threads || l->block[0] > 1024 || l->block[1] > 1024 || l->block[2] > 64 ||
		threads > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	if (threads > info->max_threads)
		return CUDA_ERROR_INVALID_VALUE;
	if (info->reqntid[0] && memcmp(info->reqntid, l->block, sizeof(info->reqntid)))
		return CUDA_ERROR_INVALID_VALUE;
	if (total_shared(l->kernel, l->dynamic_shared_bytes) > dev->limits->block_shared)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(cluster, l->cluster[0] ? l->cluster : info->cluster, 3 * sizeof(*cluster));
	if (!cluster[0])
		return CUDA_SUCCESS;
	uint64_t n = (uint64_t)cluster[0] * cluster[1] * cluster[2];
	if (dev->config.sm < 90 || !n || n > 16)
		return CUDA_ERROR_INVALID_CLUSTER_SIZE;
	for (int k = 0; k < 3; k++)
		if (l->grid[k] % cluster[k])
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult check_room(const struct sg_device *dev, const struct sg_grid *g)
{
	uint32_t one = sg_occupancy(dev, g->kernel, g->threads, g->launch.dynamic_shared_bytes);
	uint64_t all = (uint64_t)one * dev->config.n_sms;
	if (!one || all < g->unit_blocks)
		return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
	if (g->launch.cooperative && g->n_units * g->unit_blocks > all)
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return CUDA_SUCCESS;
}

static CUresult fill_grid(struct sg_device *dev, struct sg_grid *g)
{
	const struct sg_kernel_info *info = &g->kernel->info;
	const char *name = g->launch.demangled ? g->launch.demangled : info->name;
	g->params = calloc(1, info->param_bytes + 1);
	g->name = strdup(name);
	if (!g->params || !g->name)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (info->param_bytes && g->launch.params)
		memcpy(g->params, g->launch.params, info->param_bytes);
	if (!g->launch.cooperative)
		return CUDA_SUCCESS;
	g->sm_of_unit = calloc(g->n_units * g->unit_blocks, sizeof(*g->sm_of_unit));
	if (!g->sm_of_unit || sg_mem_alloc(dev, 64, &g->workspace) != CUDA_SUCCESS)
		return CUDA_ERROR_OUT_OF_MEMORY;
	/* struct grid_workspace of cooperative groups: its size, then the barrier's word. */
	memset((void *)(uintptr_t)g->workspace, 0, 64);
	*(uint32_t *)(uintptr_t)g->workspace = 64;
	return CUDA_SUCCESS;
}

static CUresult add_grid(struct sg_device *dev, struct sg_grid *g)
{
	pthread_mutex_lock(&dev->lock);
	g->id = ++dev->next_grid_id;
	struct sg_grid **p = &dev->grids;
	while (*p)
		p = &(*p)->next;
	*p = g;
	start_workers(dev);
	bool any = dev->n_workers > 0;
	if (!any)
		*p = NULL;
	pthread_cond_broadcast(&dev->work);
	pthread_mutex_unlock(&dev->lock);
	return any ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult sg_grid_start(
	struct sg_device *dev, const struct sg_launch *launch, sg_grid_done done, void *arg)
{
	uint32_t cluster[3];
	if (!launch->kernel || launch->kernel->module->dev != dev)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = check_shape(dev, launch, cluster);
	if (r != CUDA_SUCCESS)
		return r;
	struct sg_grid *g = calloc(1, sizeof(*g));
	if (!g)
		return CUDA_ERROR_OUT_OF_MEMORY;
	g->dev = dev;
	g->kernel = launch->kernel;
	g->launch = *launch;
	memcpy(g->launch.cluster, cluster, sizeof(cluster));
	g->threads = launch->block[0] * launch->block[1] * launch->block[2];
	g->shared_bytes = total_shared(launch->kernel, launch->dynamic_shared_bytes);
	g->unit_blocks = cluster[0] ? cluster[0] * cluster[1] * cluster[2] : 1;
	g->n_units = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2] / g->unit_blocks;
	g->done = done;
	g->arg = arg;
	pthread_mutex_init(&g->output_lock, NULL);
	pthread_mutex_init(&g->foreign_lock, NULL);
	r = check_room(dev, g);
	if (r == CUDA_SUCCESS)
		r = fill_grid(dev, g);
	/* Once added, the grid may be gone at any moment. */
	CUresult added = r == CUDA_SUCCESS ? add_grid(dev, g) : r;
	if (added != CUDA_SUCCESS)
		grid_free(g);
	return added;
}

void sg_grids_fail(
	struct sg_device *dev, CUresult error, bool (*which)(void *arg, void *cookie), void *cookie)
{
	pthread_mutex_lock(&dev->lock);
	for (struct sg_grid *g = dev->grids; g; g = g->next) {
		int none = CUDA_SUCCESS;
		if (which(g->arg, cookie))
			atomic_compare_exchange_strong(&g->error, &none, (int)error);
	}
	/* Resident blocks notice by themselves; a grid that has none is ended here. The lock is
	 * dropped meanwhile, so the search starts over. */
	for (struct sg_grid *g = dev->grids; g;) {
		bool end = !g->n_resident && !has_new(g);
		if (end)
			maybe_finish(dev, g);
		g = end ? dev->grids : g->next;
	}
	pthread_cond_broadcast(&dev->work);
	pthread_mutex_unlock(&dev->lock);
}

/* -- the device -------------------------------------------------------------------- */

static uint32_t online_cpus(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	return n < 1 ? 1 : n > 256 ? 256 : (uint32_t)n;
}

int sg_device_new(const struct sg_config *config, struct sg_device **out)
{
	if (!config || !out || !config->n_sms || config->n_sms > 1024 || config->sm < 50)
		return CUDA_ERROR_INVALID_VALUE;
	struct sg_device *dev = calloc(1, sizeof(*dev));
	if (!dev)
		return CUDA_ERROR_OUT_OF_MEMORY;
	dev->config = *config;
	if (!dev->config.n_workers)
		dev->config.n_workers = online_cpus();
	dev->limits = sg_limits_of(config->sm);
	dev->random = config->shuffle_seed;
	dev->sms = calloc(config->n_sms, sizeof(*dev->sms));
	dev->workers = calloc(dev->config.n_workers, sizeof(*dev->workers));
	pthread_mutex_init(&dev->lock, NULL);
	pthread_cond_init(&dev->work, NULL);
	pthread_cond_init(&dev->idle, NULL);
	if (!dev->sms || !dev->workers || sg_mem_init(&dev->mem, config->memory_bytes)) {
		free(dev->sms);
		free(dev->workers);
		free(dev);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (config->check && !(dev->check = sg_check_new(dev))) {
		sg_device_free(dev);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = dev;
	return CUDA_SUCCESS;
}

uint64_t sg_device_findings(const struct sg_device *dev)
{
	return sg_check_count(dev->check);
}

void sg_device_free(struct sg_device *dev)
{
	if (!dev)
		return;
	pthread_mutex_lock(&dev->lock);
	while (dev->grids || dev->n_finishing)
		pthread_cond_wait(&dev->idle, &dev->lock);
	dev->stop = true;
	pthread_cond_broadcast(&dev->work);
	pthread_mutex_unlock(&dev->lock);
	for (uint32_t i = 0; i < dev->n_workers; i++)
		pthread_join(dev->workers[i], NULL);
	sg_objects_free(dev);
	sg_check_free(dev->check);
	sg_mem_fini(&dev->mem);
	pthread_cond_destroy(&dev->work);
	pthread_cond_destroy(&dev->idle);
	pthread_mutex_destroy(&dev->lock);
	free(dev->sms);
	free(dev->workers);
	free(dev);
}

const struct sg_config *sg_device_config(const struct sg_device *dev)
{
	return &dev->config;
}
