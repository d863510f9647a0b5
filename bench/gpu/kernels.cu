/* kernels.cu - the work that is measured, and the same work with recordings written by hand: the floor that a probe is compared with.
 *
 * Recordings stand behind the loads, which are on their way by then; an author who measures finds that out.
 *
 * A body is a template over a recording; NONE leaves nothing of it behind. clang compiles this without a toolkit, nvcc with
 * its own names (kernel.h).
 */
#include "kernel.h"
#include "record.h"

typedef unsigned long long u64;
typedef unsigned int u32;

/* -- recordings --------------------------------------------------------------------------- */

DEVICE u32 active_lanes()
{
	u32 m;
	asm volatile("activemask.b32 %0;" : "=r"(m));
	return m;
}

DEVICE u32 sm_id()
{
	u32 s;
	asm("mov.u32 %0, %%smid;" : "=r"(s));
	return s;
}

DEVICE u32 population(u32 m)
{
	u32 n;
	asm("popc.b32 %0, %1;" : "=r"(n) : "r"(m));
	return n;
}

DEVICE u32 lanes_below()
{
	u32 below;
	asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
	return below;
}

DEVICE u32 threads_y()
{
	u32 n;
	asm("mov.u32 %0, %%ntid.y;" : "=r"(n));
	return n;
}

/* The lowest of the active lanes. */
DEVICE bool elected(u32 mask)
{
	return !(mask & lanes_below());
}

/* All threads of a block enter: one of them can count for the others. */
DEVICE bool first_of_block()
{
	return !(thread_x() | thread_y());
}

DEVICE void add(u64 *p, u64 n)
{
	asm volatile("red.global.add.u64 [%0], %1;" ::"l"(p), "l"(n) : "memory");
}

DEVICE u64 fetch_add(u64 *p, u64 n)
{
	u64 old;
	asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(n) : "memory");
	return old;
}

struct none {
	static DEVICE_METHOD void entry(const struct record &) {}
	template <int SITE, int BYTES> static DEVICE_METHOD void access(const struct record &, const void *) {}
	template <int BLOCK> static DEVICE_METHOD void block(const struct record &) {}
};

/* Threads that entered, in a counter of each multiprocessor, added by one thread of a block. */
struct entries : none {
	static DEVICE_METHOD void entry(const struct record &r)
	{
		if (first_of_block())
			add(r.counters + sm_id() * RECORD_COUNTERS, threads_x() * threads_y());
	}
};

/* Executions and bytes of each access: the first lane adds to one, the second to the other. */
struct counts : none {
	template <int SITE, int BYTES> static DEVICE_METHOD void access(const struct record &r, const void *)
	{
		u32 mask = active_lanes(), rank = population(mask & lanes_below()), n = population(mask);
		if (rank < 2) {
			u64 *c = r.counters + sm_id() * RECORD_COUNTERS + 2 * SITE;
			add(c + rank, rank ? n * BYTES : n);
			if (n == 1)
				add(c + 1, BYTES);
		}
	}
};

/* The compiler makes one addition of a warp's. */
struct blocks : none {
	template <int BLOCK> static DEVICE_METHOD void block(const struct record &r)
	{
		add(r.counters + sm_id() * RECORD_COUNTERS + BLOCK, 1);
	}
};

/* One reservation a warp in the multiprocessor's shard; what does not fit is counted. */
DEVICE u64 *reserve(const struct record &r, u32 lanes)
{
	u32 sm = sm_id();
	u64 *head = r.heads + sm * 16, at = fetch_add(head, lanes * sizeof(struct record_access));
	if (at + lanes * sizeof(struct record_access) <= r.shard_bytes)
		return (u64 *)(r.ring + sm * r.shard_bytes + at);
	add(head + 1, lanes);
	return 0;
}

struct lane_records : none {
	template <int SITE, int BYTES> static DEVICE_METHOD void access(const struct record &r, const void *p)
	{
		u32 mask = active_lanes(), below, low, high;
		u64 at = 0;
		asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
		if (elected(mask))
			at = (u64)reserve(r, population(mask));
		u32 from = population((mask & -mask) - 1);
		low = (u32)at;
		high = (u32)(at >> 32);
		asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, %2;" : "+r"(low) : "r"(from), "r"(mask));
		asm volatile("shfl.sync.idx.b32 %0, %0, %1, 31, %2;" : "+r"(high) : "r"(from), "r"(mask));
		at = (u64)high << 32 | low;
		if (at) {
			u64 *mine = (u64 *)at + 2 * population(mask & below);
			asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(mine), "l"(p), "l"((u64)BYTES << 32 | SITE) : "memory");
		}
	}
};

struct warp_records : none {
	template <int SITE, int BYTES> static DEVICE_METHOD void access(const struct record &r, const void *p)
	{
		u32 mask = active_lanes();
		if (elected(mask)) {
			u64 *mine = reserve(r, 1);
			if (mine)
				asm volatile("st.global.v2.u64 [%0], {%1, %2};" ::"l"(mine), "l"(p), "l"((u64)mask << 32 | SITE) : "memory");
		}
	}
};

/* Threads by a key of the block, in one table for the whole device. */
struct table : none {
	static DEVICE_METHOD void entry(const struct record &r)
	{
		if (!first_of_block())
			return;
		u64 key = block_x() % RECORD_KEYS + 1;
		u32 at = (u32)(key * 2654435761u) % RECORD_SLOTS;
		for (;; at = (at + 1) % RECORD_SLOTS) {
			u64 *k = &r.slots[at].key, seen;
			asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(seen) : "l"(k) : "memory");
			if (!seen)
				asm volatile("atom.global.cas.b64 %0, [%1], 0, %2;" : "=l"(seen) : "l"(k), "l"(key) : "memory");
			if (!seen || seen == key)
				break;
		}
		add(&r.slots[at].value, threads_x() * threads_y());
	}
};

/* -- work ------------------------------------------------------------------------------------ */

template <class R> DEVICE void vecadd_body(const float *a, const float *b, float *c, u64 n, const struct record &r)
{
	u64 i = index_x();
	R::entry(r);
	if (i >= n)
		return;
	float x = a[i], y = b[i];
	R::template access<0, 4>(r, a + i);
	R::template access<1, 4>(r, b + i);
	R::template access<2, 4>(r, c + i);
	c[i] = x + y;
}

/* c = a b, all n by n, in tiles of 16 by 16; n is a multiple of 16. */
template <class R> DEVICE void matmul_body(const float *a, const float *b, float *c, u32 n, const struct record &r)
{
	SHARED static float ta[16][16], tb[16][16];
	u32 x = thread_x(), y = thread_y(), row = block_y() * 16 + y, col = block_x() * 16 + x;
	float sum = 0;
	R::entry(r);
	R::template block<0>(r);
	for (u32 t = 0; t < n; t += 16) {
		float va = a[(u64)row * n + t + x], vb = b[(u64)(t + y) * n + col];
		R::template block<1>(r);
		R::template access<0, 4>(r, a + (u64)row * n + t + x);
		R::template access<1, 4>(r, b + (u64)(t + y) * n + col);
		ta[y][x] = va;
		tb[y][x] = vb;
		block_barrier();
		UNROLL
		for (u32 k = 0; k < 16; k++)
			sum += ta[y][k] * tb[k][x];
		block_barrier();
	}
	R::template block<2>(r);
	R::template access<2, 4>(r, c + (u64)row * n + col);
	c[(u64)row * n + col] = sum;
}

/* *out += the sum of n numbers, by blocks of 256 threads. */
template <class R> DEVICE void reduce_body(const u32 *in, u64 *out, u64 n, const struct record &r)
{
	SHARED static u64 part[256];
	u64 sum = 0, step = (u64)threads_x() * blocks_x();
	u32 t = thread_x();
	R::entry(r);
	for (u64 i = index_x(); i < n; i += step) {
		R::template access<0, 4>(r, in + i);
		sum += in[i];
	}
	part[t] = sum;
	block_barrier();
	for (u32 half = 128; half; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		block_barrier();
	}
	if (t == 0) {
		R::template access<1, 8>(r, out);
		add(out, part[0]);
	}
}

/* out = in transposed, n by n; blocks of 32 by 8 threads, a tile of 32 by 32 each. */
template <class R> DEVICE void transpose_body(const float *in, float *out, u32 n, const struct record &r)
{
	SHARED static float tile[32][33];
	u32 x = thread_x(), y = thread_y(), bx = block_x() * 32, by = block_y() * 32;
	R::entry(r);
	UNROLL
	for (u32 i = 0; i < 32; i += 8) {
		R::template access<0, 4>(r, in + (u64)(by + y + i) * n + bx + x);
		tile[y + i][x] = in[(u64)(by + y + i) * n + bx + x];
	}
	block_barrier();
	UNROLL
	for (u32 i = 0; i < 32; i += 8) {
		R::template access<1, 4>(r, out + (u64)(bx + y + i) * n + by + x);
		out[(u64)(bx + y + i) * n + by + x] = tile[x][y + i];
	}
}

enum { HEAD = 64, KEYS = 64 };

/* softmax(q k^T / 8) v of each head, by one thread a query and 64 queries a block; block_y is the head, keys come in tiles. */
template <class R> DEVICE void attention_body(const float *q, const float *k, const float *v, float *o, u32 length, const struct record &r)
{
	SHARED static float tile_k[KEYS][HEAD], tile_v[KEYS][HEAD];
	u32 t = thread_x();
	u64 head = (u64)block_y() * length * HEAD, mine = head + ((u64)block_x() * 64 + t) * HEAD;
	float query[HEAD], sum[HEAD], top = -1e30f, weight = 0;
	R::entry(r);
	UNROLL
	for (u32 d = 0; d < HEAD; d++) {
		R::template access<0, 4>(r, q + mine + d);
		query[d] = q[mine + d] * 0.125f;
		sum[d] = 0;
	}
	for (u32 base = 0; base < length; base += KEYS) {
		block_barrier();
		for (u32 i = t; i < KEYS * HEAD; i += 64) {
			R::template access<1, 4>(r, k + head + (u64)base * HEAD + i);
			tile_k[i / HEAD][i % HEAD] = k[head + (u64)base * HEAD + i];
			R::template access<2, 4>(r, v + head + (u64)base * HEAD + i);
			tile_v[i / HEAD][i % HEAD] = v[head + (u64)base * HEAD + i];
		}
		block_barrier();
		for (u32 j = 0; j < KEYS; j++) {
			float score = 0;
			UNROLL
			for (u32 d = 0; d < HEAD; d++)
				score += query[d] * tile_k[j][d];
			float high = score > top ? score : top, keep, part;
			asm("ex2.approx.f32 %0, %1;" : "=f"(keep) : "f"((top - high) * 1.442695041f));
			asm("ex2.approx.f32 %0, %1;" : "=f"(part) : "f"((score - high) * 1.442695041f));
			top = high;
			weight = weight * keep + part;
			UNROLL
			for (u32 d = 0; d < HEAD; d++)
				sum[d] = sum[d] * keep + part * tile_v[j][d];
		}
	}
	UNROLL
	for (u32 d = 0; d < HEAD; d++) {
		R::template access<3, 4>(r, o + mine + d);
		o[mine + d] = sum[d] / weight;
	}
}

DEVICE u64 mix(u64 x)
{
	x ^= x >> 31;
	x *= 0x9e3779b97f4a7c15ull;
	x ^= x >> 29;
	return x;
}

struct row {
	u64 key; /* 0: free */
	u64 value;
};

/* The probe side of a hash join: each of n keys is looked up in a table of 2^bits rows; *out += the values that are found. */
template <class R> DEVICE void hashjoin_body(const struct row *rows, u32 bits, u64 n, u64 *out, const struct record &r)
{
	u64 i = index_x(), mask = ((u64)1 << bits) - 1;
	R::entry(r);
	if (i >= n)
		return;
	u64 key = mix(i * 2 + 1) % (n / 2) + 1; /* half of them are there */
	for (u64 at = mix(key) & mask;; at = (at + 1) & mask) {
		R::template access<0, 8>(r, &rows[at].key);
		u64 seen = rows[at].key;
		if (!seen)
			return;
		if (seen == key) {
			R::template access<1, 8>(r, &rows[at].value);
			add(out + (i & 1023), rows[at].value);
			return;
		}
	}
}

/* NAME as it is, and NAME_R for each recording R. */
#define PLAIN(name, declared, given)                                                               \
	KERNEL name declared                                                                       \
	{                                                                                          \
		struct record r;                                                                   \
		name##_body<none> given;                                                           \
	}
#define RECORDING(name, R, kind, declared, given)                                                  \
	KERNEL name##_##R declared                                                                 \
	{                                                                                          \
		name##_body<kind> given;                                                           \
	}

#define VECADD const float *a, const float *b, float *c, u64 n
#define MATMUL const float *a, const float *b, float *c, u32 n
PLAIN(vecadd, (VECADD), (a, b, c, n, r))
RECORDING(vecadd, entry, entries, (VECADD, struct record r), (a, b, c, n, r))
RECORDING(vecadd, counts, counts, (VECADD, struct record r), (a, b, c, n, r))
RECORDING(vecadd, record, lane_records, (VECADD, struct record r), (a, b, c, n, r))
RECORDING(vecadd, warprec, warp_records, (VECADD, struct record r), (a, b, c, n, r))
RECORDING(vecadd, hash, table, (VECADD, struct record r), (a, b, c, n, r))
PLAIN(matmul, (MATMUL), (a, b, c, n, r))
RECORDING(matmul, entry, entries, (MATMUL, struct record r), (a, b, c, n, r))
RECORDING(matmul, counts, counts, (MATMUL, struct record r), (a, b, c, n, r))
RECORDING(matmul, blocks, blocks, (MATMUL, struct record r), (a, b, c, n, r))
PLAIN(reduce, (const u32 *in, u64 *out, u64 n), (in, out, n, r))
RECORDING(reduce, counts, counts, (const u32 *in, u64 *out, u64 n, struct record r), (in, out, n, r))
PLAIN(transpose, (const float *in, float *out, u32 n), (in, out, n, r))
RECORDING(transpose, counts, counts, (const float *in, float *out, u32 n, struct record r), (in, out, n, r))
PLAIN(attention, (const float *q, const float *k, const float *v, float *o, u32 length), (q, k, v, o, length, r))
RECORDING(attention, counts, counts, (const float *q, const float *k, const float *v, float *o, u32 length, struct record r),
	(q, k, v, o, length, r))
PLAIN(hashjoin, (const struct row *rows, u32 bits, u64 n, u64 *out), (rows, bits, n, out, r))
RECORDING(hashjoin, counts, counts, (const struct row *rows, u32 bits, u64 n, u64 *out, struct record r), (rows, bits, n, out, r))

/* -- around them -------------------------------------------------------------------------- */

/* Floats and numbers whose sums and products stay exact. */
KERNEL fill_floats(float *p, u64 n, u32 modulus, float scale)
{
	u64 step = (u64)threads_x() * blocks_x();
	for (u64 i = index_x(); i < n; i += step)
		p[i] = ((float)(mix(i) % modulus) - (float)(modulus / 2)) * scale;
}

KERNEL fill_numbers(u32 *p, u64 n)
{
	u64 step = (u64)threads_x() * blocks_x();
	for (u64 i = index_x(); i < n; i += step)
		p[i] = (u32)(i % 1000);
}

/* Keys 1 to n, each in its row; the value of key is 3 key. */
KERNEL fill_table(struct row *rows, u32 bits, u64 n)
{
	u64 i = index_x(), mask = ((u64)1 << bits) - 1, seen;
	if (i >= n)
		return;
	for (u64 at = mix(i + 1) & mask;; at = (at + 1) & mask) {
		asm volatile("atom.global.cas.b64 %0, [%1], 0, %2;" : "=l"(seen) : "l"(&rows[at].key), "l"(i + 1) : "memory");
		if (!seen) {
			rows[at].value = 3 * (i + 1);
			return;
		}
	}
}

KERNEL check_vecadd(VECADD, u64 *wrong)
{
	u64 i = index_x();
	if (i < n && c[i] != a[i] + b[i])
		fetch_add(wrong, 1);
}

KERNEL check_transpose(const float *in, const float *out, u32 n, u64 *wrong)
{
	u64 i = index_x();
	if (i < (u64)n * n && in[i] != out[i % n * n + i / n])
		fetch_add(wrong, 1);
}

/* Reads until nothing of the last launch is left in the second-level cache. */
KERNEL flush(const u32 *p, u64 n, u32 *out)
{
	u32 sum = 0;
	u64 step = (u64)threads_x() * blocks_x();
	for (u64 i = index_x(); i < n; i += step)
		sum += p[i];
	if (sum == 0x12345678)
		*out = sum;
}
