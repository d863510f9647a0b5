/* internal.h - what the files of the software GPU share.
 *
 * A warp's registers are laid out register-major: 32 lanes of 4 bytes (everything up to 32 bits) or
 * of 8 bytes (64 bits; 128 bits are two such planes), so that a handler is a plain loop over lanes.
 * Predicates are one 32-bit lane mask each. Registers up to 32 bits hold their value zero-extended.
 *
 * An operand is 2 bits of base and 30 bits of byte offset:
 *   0 registers of the current frame   1 constants of the module, each repeated for 32 lanes
 *   2 this warp's special registers    3 this block's special registers
 */
#ifndef EGPU_SOFTGPU_INTERNAL_H
#define EGPU_SOFTGPU_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/table.h"
#include "ptx/ptx.h"
#include "softgpu/check.h"
#include "softgpu/softgpu.h"

#define SG_FULL UINT32_MAX
#define SG_NO_PC UINT32_MAX

/* Windows of the generic address space, at addresses that no host pointer has. The low 32 bits are
 * the address in the space. A shared address has its block's rank in the cluster plus one in bits
 * 24..31; 0 there means the executing block's own. */
#define SG_WINDOW(a) ((a) >> 32)
#define SG_WIN_SHARED 0x7f010000ull
#define SG_WIN_LOCAL 0x7f020000ull
#define SG_WIN_PARAM 0x7f030000ull
#define SG_WIN_FUNC 0x7f040000ull /* function pointers: (index + 1) * 16 */
#define SG_RANK_SHIFT 24

enum sg_type {
	T_NONE,
	T_U8,
	T_S8,
	T_B8,
	T_U16,
	T_S16,
	T_B16,
	T_U32,
	T_S32,
	T_B32,
	T_U64,
	T_S64,
	T_B64,
	T_B128,
	T_S4,
	T_U4,
	T_F16,
	T_F16X2,
	T_BF16,
	T_BF16X2,
	T_F32,
	T_F64,
	T_TF32,
	T_U16X2,
	T_S16X2,
	T_E4M3X2,
	T_E5M2X2,
	T_PRED,
	T_COUNT
};

struct sg_warp;
struct sg_insn;
/* Executes one instruction for the lanes in mask (never empty). The warp's pc is already advanced.
 */
typedef void (*sg_handler)(struct sg_warp *w, const struct sg_insn *in, uint32_t mask);
/* Compares 32 lanes. */
typedef uint32_t (*sg_compare)(const void *a, const void *b);

enum sg_flag {
	SG_FTZ = 1,
	SG_SAT = 2,
	SG_NAN = 4, /* min/max.NaN */
	SG_XORSIGN = 8,
	SG_RELU = 16,
	SG_GUARD_NOT = 32,
	SG_APPROX = 64,
	SG_SYNC = 128,   /* a member mask is waited for */
	SG_BASE32 = 256, /* the address register has 32-bit lanes */
	SG_SPIN = 512,   /* loops around this instruction are likely to wait for another thread */
	SG_ACQUIRE = 1024,
	SG_RELEASE = 2048,
	SG_CALL_INDIRECT = 4096,
	SG_NOT_C = 8192, /* third operand, a predicate, is negated */
	SG_SATFINITE = 16384,
	SG_NOT_A = 32768, /* first operand, a predicate, is negated */
};

/* How the base of an address operand is found. */
enum sg_addr {
	SG_ADDR_REG,    /* register a + imm */
	SG_ADDR_SHARED, /* offset of shared variable `target` in the kernel + imm */
	SG_ADDR_LOCAL,  /* local base of the frame + imm */
};

struct sg_insn {
	sg_handler fn;
	uint32_t guard; /* operand of the guard predicate + 1; 0: none */
	uint32_t flags;
	uint32_t d, d2, a, b, c, e;
	int64_t imm;
	uint32_t target; /* pc of a branch, index of a function or shared variable */
	uint32_t line;   /* in the PTX text */
	uint8_t op, type, type2, rnd;
	uint8_t space, addr, n, bytes; /* memory: elements and bytes of each */
	uint8_t reg_bits; /* of the destination register of a load, when less than its lane */
	uint8_t width;    /* bytes a lane of the destination (load) or source (store) registers */
	uint8_t sub;      /* second operation code of some handlers */
	uint8_t has;      /* bit i: the optional operand i is there */
	const uint32_t *list; /* vector operands, call arguments, branch targets */
	union {
		sg_compare compare;
		const struct sg_mma *mma;
	};
	const char *opcode;
};

/* A matrix multiplication: types, bits of an element of A, registers of each operand, size. */
struct sg_mma {
	uint8_t type_a, type_b, type_c, type_d, bits, n_a, n_b, n_c, n_d;
	uint8_t rows;	/* of A and D */
	uint8_t cols;	/* of B and D; mma.sync: 8 */
	bool exclusive; /* one-bit elements are compared, not multiplied */
	bool sparse;    /* A is compressed; list has the metadata's register last */
	uint8_t selector; /* which lanes have it */
	bool a_cols, b_rows; /* m8n8k4 of halves */
	uint16_t k;
};

/* The addresses of a bulk copy: of each only what sg_addresses reads, and the space. */
struct sg_bulk {
	struct sg_insn dst, src, bar;
	uint32_t values[4]; /* of st.async and red.async */
};

/* A parameter or result of a function or of one call. */
struct sg_arg {
	uint32_t offset, bytes; /* in the frame's parameter area */
	uint32_t reg;           /* operand, when it is passed in a register */
	uint8_t width;          /* bytes a lane of reg, or 0: the parameter area; 1: predicate */
};

struct sg_call {
	const struct sg_arg *args, *rets;
	uint32_t n_args, n_rets;
};

enum sg_builtin { SG_NO_BUILTIN, SG_VPRINTF, SG_ASSERTFAIL, SG_MALLOC, SG_FREE, SG_SET_CONDITION,
	SG_UNRESOLVED };

struct sg_func {
	const char *name;
	const struct sg_module *module; /* that defines it */
	const struct ptx_func *ptx;
	bool is_entry;
	uint8_t builtin;
	uint32_t index;
	uint32_t pc, n_code;
	uint32_t reg_bytes;   /* predicates first; a multiple of 64 */
	uint32_t local_bytes; /* a lane */
	uint32_t param_bytes; /* a lane: own parameters and results, then those of its calls */
	struct sg_arg *params, *results;
	uint32_t n_params, n_results;
	uint32_t *shared_vars, n_shared_vars; /* indices into the module's list */
	uint32_t *callees, n_callees;
	bool calls_pointer;
	uint32_t n_live; /* most 32-bit registers alive at once, estimated */
};

struct sg_shared_var {
	const struct ptx_var *var;
	bool dynamic;
};

struct sg_var {
	const struct ptx_var *ptx;
	uint64_t addr;
	uint64_t bytes;
	uint32_t shared; /* index into the module's shared variables, when in that space */
	bool undefined;  /* extern without a definition */
};

struct sg_kernel {
	struct sg_module *module;
	struct sg_func *func;
	struct sg_kernel_info info;
	uint32_t *shared_offset; /* by shared variable of the module */
	uint32_t dynamic_align;
};

struct sg_module {
	struct sg_device *dev;
	struct ptx_module *ptx;
	struct arena *arena;
	struct table *vars;  /* name -> struct sg_var */
	struct table *funcs; /* name -> struct sg_func */
	struct sg_insn *code;
	uint32_t n_code;
	struct sg_func **func_list;
	uint32_t n_funcs;
	struct sg_shared_var *shared_vars;
	uint32_t n_shared_vars;
	struct sg_kernel **kernels;
	uint32_t n_kernels;
	uint8_t *consts;
	uint64_t *allocs; /* device memory of the variables */
	uint32_t n_allocs;
	uint32_t const_bytes;
};

/* -- memory.c ---------------------------------------------------------------- */

struct sg_alloc {
	uint64_t base, bytes;
};

/* A registered host range; written under the lock, read under the sequence count. */
struct sg_host_range {
	_Atomic uint64_t base, end;
};

struct sg_mem {
	uint64_t base, span;     /* the reserved region */
	_Atomic uint16_t *valid; /* by 256-byte granule: bytes from its start that are allocated */
	uint64_t limit, used;
	uint64_t writable_end;   /* offset below which pages are mapped */
	uint64_t cursor;         /* where the search for room goes on */
	struct sg_alloc *allocs; /* sorted by base */
	size_t n_allocs, cap_allocs;
	struct sg_host_range *ranges; /* sorted by base; room for SG_MAX_RANGES */
	_Atomic uint32_t n_ranges;
	_Atomic uint32_t ranges_seq; /* odd while ranges are being changed */
	pthread_mutex_t lock;
};

int sg_mem_init(struct sg_mem *m, uint64_t bytes);
void sg_mem_fini(struct sg_mem *m);
/* Where an address that no kernel may use lies: ", 4 bytes past the allocation of ...", or "". */
void sg_mem_describe(struct sg_mem *m, uint64_t addr, char *out, size_t size);
bool sg_mem_is_host(struct sg_mem *m, uint64_t addr, size_t bytes);

/* The host address of bytes at addr, or NULL where a kernel may not go. bytes is at most 256 and
 * addr a multiple of it, so that one granule decides. */
static inline void *sg_mem_at(struct sg_mem *m, uint64_t addr, uint32_t bytes)
{
	uint64_t off = addr - m->base;
	if (off < m->span)
		return (off & 255) + bytes <= atomic_load_explicit(
						      &m->valid[off >> 8], memory_order_relaxed)
			       ? (void *)(uintptr_t)addr
			       : NULL;
	return sg_mem_is_host(m, addr, bytes) ? (void *)(uintptr_t)addr : NULL;
}

/* -- execution --------------------------------------------------------------- */

/* One activation of a function by the lanes that called together. */
struct sg_frame {
	struct sg_frame *parent;
	const struct sg_func *func;
	const struct sg_insn *call; /* that made it; NULL in the kernel itself */
	uint32_t live;              /* lanes that have not returned */
	uint32_t depth;
	uint32_t local_base; /* first local address of this frame, same in every lane */
	size_t bytes;        /* of the whole allocation */
	uint32_t *marks; /* ends of the lanes' stacks when it first took of them; NULL: not yet */
	uint8_t *regs, *local, *param;
};

/* Memory of alloca, a lane's after the other's (exec_stack.c). */
struct sg_stack {
	uint8_t *mem;
	uint32_t room;    /* bytes of a lane */
	uint32_t top[32]; /* bytes in use */
};
#define SG_STACK_BASE (1ull << 24) /* a local address that no frame has */

enum sg_state { SG_READY, SG_WAIT_BAR, SG_WAIT_WARP };

/* Lanes that execute together. */
struct sg_path {
	uint32_t pc, mask;
	struct sg_frame *frame;
	uint8_t state;
	uint8_t bar;   /* SG_WAIT_BAR: which */
	bool bar_done; /* the barrier instruction at pc was released; bar_value is its result */
	uint32_t bar_value;
	uint64_t stamp; /* when it ran last */
	uint64_t until; /* left behind up to this time in nanoseconds; 0: not */
};

enum { SG_S_TIDX, SG_S_TIDY, SG_S_TIDZ, SG_S_WARPID, SG_S_COUNT };

/* Special registers that are the same for a whole block, or for every block. */
enum {
	SG_B_NTIDX,
	SG_B_NTIDY,
	SG_B_NTIDZ,
	SG_B_CTAIDX,
	SG_B_CTAIDY,
	SG_B_CTAIDZ,
	SG_B_NCTAIDX,
	SG_B_NCTAIDY,
	SG_B_NCTAIDZ,
	SG_B_LANEID,
	SG_B_NWARPID,
	SG_B_SMID,
	SG_B_NSMID,
	SG_B_GRIDID,
	SG_B_GRIDID_HI, /* one 64-bit plane */
	SG_B_LM_EQ,
	SG_B_LM_LE,
	SG_B_LM_LT,
	SG_B_LM_GE,
	SG_B_LM_GT,
	SG_B_DYN_SMEM,
	SG_B_TOTAL_SMEM,
	SG_B_CLUSTERX,
	SG_B_CLUSTERY,
	SG_B_CLUSTERZ,
	SG_B_NCLUSTERX,
	SG_B_NCLUSTERY,
	SG_B_NCLUSTERZ,
	SG_B_CCTAIDX,
	SG_B_CCTAIDY,
	SG_B_CCTAIDZ,
	SG_B_CNCTAIDX,
	SG_B_CNCTAIDY,
	SG_B_CNCTAIDZ,
	SG_B_CRANK,
	SG_B_CNRANK,
	SG_B_ENVREG1,
	SG_B_ENVREG2,
	SG_B_ZERO,
	SG_B_ZERO_HI, /* one 64-bit plane */
	SG_B_EXPLICIT_CLUSTER,
	SG_B_COUNT
};

struct sg_warp {
	uint8_t *base[4]; /* see the top */
	const struct sg_insn *code; /* of the frame's module: pc is an index into it */
	uint32_t pc;
	uint32_t stop_pc; /* the run loop looks up when pc reaches this; 0: at once */
	uint32_t mask;
	int32_t fuel;
	struct sg_frame *frame;
	struct sg_block *block;
	struct sg_mem *mem;
	uint32_t live; /* lanes that have not exited */
	uint32_t index;
	int32_t cur; /* path that is unpacked into pc, mask and frame; -1: none */
	uint32_t n_paths;
	uint32_t spins;    /* instructions marked SG_SPIN since the path was chosen */
	uint32_t patience; /* fuel spent on the chosen path while others were ready */
	uint32_t turns;	   /* in a row that a path ran out of turn */
	bool rotate;       /* the next choice goes to the path that waited longest */
	bool failed;
	bool check;     /* the device is a checked one */
	uint64_t clock; /* for stamps */
	struct sg_path paths[32];
	uint32_t bar_partial[16]; /* lanes that arrived while others of the warp have not */
	struct sg_frame *spare;
	struct sg_stack *stack; /* NULL: nothing has been taken of it */
	uint32_t cluster_phase[32]; /* of the cluster barrier when each lane arrived */
	_Alignas(64) uint32_t special[SG_S_COUNT][32];
};

struct sg_barrier {
	uint32_t arrived;  /* threads, counted by whole warps */
	uint32_t expected; /* explicit count, 0: all warps that have not exited */
	uint32_t popc;
	bool any, all, used;
};

struct sg_grid;

/* Blocks that are resident together and see each other's shared memory. */
struct sg_cluster {
	struct sg_block *blocks[16];
	uint32_t n_blocks,
		n_ended; /* under the device's lock; the memory lives until all have ended */
	uint32_t arrived, phase, threads; /* barrier.cluster, under lock */
	pthread_mutex_t lock;
};

struct sg_block {
	struct sg_block *next;
	struct sg_grid *grid;
	uint32_t id[3];
	uint32_t sm, rank;
	uint32_t n_warps, live_warps;
	struct sg_warp *warps;
	uint8_t *shared;
	uint32_t shared_bytes;
	struct sg_cluster *cluster;
	struct sg_check_block *check; /* NULL: not a checked device */
	struct sg_barrier bars[16];
	int64_t budget;
	uint32_t next_warp;
	uint64_t random; /* state of the shuffled schedule; 0: in order */
	_Alignas(64) uint32_t special[SG_B_COUNT][32];
};

struct sg_foreign;

struct sg_grid {
	struct sg_grid *next;
	struct sg_device *dev;
	const struct sg_kernel *kernel;
	struct sg_launch launch;
	uint8_t *params;
	char *name; /* for messages */
	uint64_t id;
	uint64_t n_units, next_unit; /* a unit is a cluster, or a block where there are none */
	uint32_t unit_blocks;
	uint64_t n_resident; /* blocks that were started and have not ended */
	uint32_t next_sm; /* where the search for its next place begins */
	uint32_t shared_bytes, threads;
	uint64_t workspace; /* device memory of a cooperative grid's barrier */
	bool admitted;      /* cooperative: its places are reserved, in sm_of_unit */
	uint32_t *sm_of_unit;
	_Atomic int error;
	pthread_mutex_t output_lock;
	struct buf output; /* of printf */
	struct sg_foreign *_Atomic foreign; /* functions called that lie in memory (code.c) */
	pthread_mutex_t foreign_lock;
	sg_grid_done done;
	void *arg;
};

struct sg_sm {
	uint32_t threads, blocks, shared;
};

/* Limits of one multiprocessor of a compute capability. */
struct sg_limits {
	uint32_t sm, threads, blocks, shared, block_shared;
};
const struct sg_limits *sg_limits_of(uint32_t sm);

struct sg_device {
	struct sg_config config;
	struct sg_mem mem;
	const struct sg_limits *limits;
	struct sg_sm *sms;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t work, idle;
	pthread_t *workers;
	uint32_t n_workers; /* started */
	bool stop;
	struct sg_grid *grids;               /* running, in order of start */
	uint64_t turn;                       /* id of the grid that started a block last */
	uint32_t n_finishing;                /* grids whose callback runs */
	struct sg_block *ready, *ready_last; /* resident blocks that no worker runs */
	uint64_t next_grid_id;
	uint32_t picks; /* of a block to run */
	uint64_t random;
	_Atomic uint64_t frame_bytes; /* of all warps */
	struct sg_check *check; /* NULL: not a checked device */
	struct sg_objects *_Atomic objects; /* texture.c; NULL: none yet */
};

#define SG_MAX_ARG 64u /* bytes of a parameter that are copied at once */
#define SG_MAX_DEPTH 8192
#define SG_MAX_LOCAL (512u << 10)  /* bytes of a thread, as on hardware */
#define SG_MAX_FRAMES (2ull << 30) /* bytes of all frames */
#define SG_MANY_FRAMES                                                                             \
	(256ull << 20) /* from here on new blocks start rarely while old ones can run */

/* What operands mean in a frame. */
static inline void sg_use(struct sg_warp *w, const struct sg_frame *f)
{
	w->base[0] = f->regs;
	w->base[1] = f->func->module->consts;
}

/* The instruction that a path is at. */
static inline const struct sg_insn *sg_path_insn(const struct sg_path *p)
{
	return &p->frame->func->module->code[p->pc];
}

static inline void *sg_op(const struct sg_warp *w, uint32_t o)
{
	return w->base[o >> 30] + (o & 0x3fffffff);
}

/* The rest of the arguments, as one body, for each lane i in MASK. Lanes never depend on each other
 * and registers overlap fully or not at all, which is what ivdep promises. */
#define SG_LANES(MASK, ...)                                                                        \
	do {                                                                                       \
		if ((MASK) == SG_FULL) {                                                           \
			_Pragma("GCC ivdep") for (int i = 0; i < 32; i++)                          \
			{                                                                          \
				__VA_ARGS__                                                        \
			}                                                                          \
		} else {                                                                           \
			for (uint32_t m_ = (MASK); m_; m_ &= m_ - 1) {                             \
				int i = __builtin_ctz(m_);                                         \
				__VA_ARGS__                                                        \
			}                                                                          \
		}                                                                                  \
	} while (0)

#define SG_HANDLER(name) void name(struct sg_warp *w, const struct sg_insn *in, uint32_t mask)

/* One row of the table of instructions that need no decoder of their own.
 * sig: destination then sources; 2 4 8 x: lanes of 16, 32, 64, 128 bits; p: predicate;
 * h: 16-bit float, otherwise 2; i: immediate into insn.imm. */
struct sg_row {
	const char *opcode;
	sg_handler fn;
	const char *sig;
	uint8_t op;
};
extern const struct sg_row sg_int_rows[], sg_float_rows[];
extern const uint32_t sg_n_int_rows, sg_n_float_rows;

/* code.c: the function that a grid finds at an address, NULL: none. sg_code_free: when the grid has ended. */
const struct sg_func *sg_code_at(struct sg_grid *g, uint64_t at);
void sg_code_free(struct sg_grid *g);

SG_HANDLER(sg_lop3_pred); /* exec_int.c */
/* exec_stack.c */
SG_HANDLER(sg_alloca);
SG_HANDLER(sg_stacksave);
SG_HANDLER(sg_stackrestore);
void *sg_stack_at(const struct sg_warp *w, uint32_t lane, uint64_t addr, uint32_t bytes);
void sg_stack_leave(struct sg_warp *w, struct sg_frame *f, uint32_t mask);
void sg_stack_free(struct sg_warp *w);

/* exec_video.c */
enum sg_video_op {
	SG_V_ADD,
	SG_V_SUB,
	SG_V_AVRG,
	SG_V_ABSDIFF,
	SG_V_MIN,
	SG_V_MAX,
	SG_V_SET,
	SG_V_SHL,
	SG_V_SHR,
	SG_V_MAD
};
enum sg_video_second { SG_V_NOTHING, SG_V_PLUS, SG_V_LEAST, SG_V_MOST };
enum { SG_V_SAT = 1, SG_V_WRAP = 2, SG_V_PO = 4 }; /* in insn.has */
SG_HANDLER(sg_video);

/* exec_float.c, exec_round.c */
enum sg_fop {
	SG_F_ADD,
	SG_F_SUB,
	SG_F_MUL,
	SG_F_FMA,
	SG_F_DIV,
	SG_F_RCP,
	SG_F_SQRT,
	SG_F_RSQRT,
	SG_F_SIN,
	SG_F_COS,
	SG_F_EX2,
	SG_F_LG2,
	SG_F_TANH,
	SG_F_ABS,
	SG_F_NEG,
	SG_F_MIN,
	SG_F_MAX,
	SG_F_COPYSIGN,
	SG_F_MIN3,
	SG_F_MAX3
};
enum sg_rnd { SG_RN, SG_RZ, SG_RM, SG_RP, SG_RNA, SG_RNI = 8, SG_RZI, SG_RMI, SG_RPI };
SG_HANDLER(sg_float32); /* any operation, rounding and flag, from insn.op, rnd, flags */
SG_HANDLER(sg_float64);
SG_HANDLER(sg_float16); /* f16, bf16 and their x2 forms, from insn.type */
SG_HANDLER(sg_testp32);
SG_HANDLER(sg_testp64);
/* exec_half.c: loops of their own for what has no modifiers, or NULL. */
sg_handler sg_half_fast(uint8_t op, bool pair);
sg_handler sg_half_cvt(uint8_t dst, uint8_t src);
float sg_half_to_float(uint16_t h);
float sg_bf16_to_float(uint16_t h);
/* v rounded to a format with ebits of exponent and mbits of mantissa, infinities and NaN included.
 */
uint64_t sg_pack_double(double v, int ebits, int mbits, int rnd);
double sg_round_odd_fma(double a, double b, double c);
double sg_fma_rounded(double a, double b, double c, uint8_t rnd);

/* exec_cvt.c */
SG_HANDLER(sg_cvt);
SG_HANDLER(sg_cvt_pack);
SG_HANDLER(sg_cvt_fp8);
double sg_fp8_to_double(uint8_t type, uint32_t v);
SG_HANDLER(sg_cvt_saturate); /* cvt.pack */
/* float to integer by truncation, or NULL */
sg_handler sg_cvt_truncate(uint8_t dst, uint8_t src);
sg_handler sg_cvt_fast(uint8_t dst, uint8_t src, uint8_t dst_width, uint8_t src_width);

/* exec_cmp.c */
enum sg_cmp {
	SG_EQ,
	SG_NE,
	SG_LT,
	SG_LE,
	SG_GT,
	SG_GE,
	SG_EQU,
	SG_NEU,
	SG_LTU,
	SG_LEU,
	SG_GTU,
	SG_GEU,
	SG_NUM,
	SG_NANC,
	SG_CMP_COUNT
};
sg_compare sg_compare_fn(uint8_t type, uint8_t cmp);
SG_HANDLER(sg_setp);
SG_HANDLER(sg_setp_x2);
SG_HANDLER(sg_set);
SG_HANDLER(sg_selp32);
SG_HANDLER(sg_selp64);
SG_HANDLER(sg_slct);
SG_HANDLER(sg_pred_logic); /* op: and, or, xor, not, mov */

/* State spaces as the executor sees them; constants are device memory. */
enum sg_space { SP_GENERIC, SP_GLOBAL, SP_SHARED, SP_LOCAL, SP_KERNEL_PARAM, SP_FRAME_PARAM };

/* exec_mem.c */
enum sg_atom {
	SG_A_ADD,
	SG_A_MIN,
	SG_A_MAX,
	SG_A_INC,
	SG_A_DEC,
	SG_A_AND,
	SG_A_OR,
	SG_A_XOR,
	SG_A_EXCH,
	SG_A_CAS
};
SG_HANDLER(sg_load);
SG_HANDLER(sg_load_global32);
SG_HANDLER(sg_load_global64);
SG_HANDLER(sg_load_param);
SG_HANDLER(sg_store);
SG_HANDLER(sg_store_global32);
SG_HANDLER(sg_store_global64);
/* exec_atom.c */
SG_HANDLER(sg_atom);
SG_HANDLER(sg_atom128);
SG_HANDLER(sg_cp_async);
SG_HANDLER(sg_cvta);
SG_HANDLER(sg_isspacep);
SG_HANDLER(sg_mapa);
SG_HANDLER(sg_fence);
SG_HANDLER(sg_mbarrier);
SG_HANDLER(sg_mbarrier_pending);
SG_HANDLER(sg_ctarank);
/* One operation of in->op, type and bytes on memory; the old value. */
uint64_t sg_atom_apply(const struct sg_insn *in, void *p, uint64_t b, uint64_t c, bool global);
/* Bytes of a transaction have arrived. */
void sg_mbarrier_complete(uint64_t *p, uint64_t bytes);
/* exec_bulk.c */
SG_HANDLER(sg_bulk);
SG_HANDLER(sg_store_async); /* st.async, red.async */
/* The address operand of each lane in mask. */
void sg_addresses(struct sg_warp *w, const struct sg_insn *in, uint32_t mask, uint64_t *addr);
/* Host address of bytes (a power of two) in a state space, or NULL: out of bounds or misaligned. */
void *sg_resolve(struct sg_warp *w, uint32_t lane, uint8_t space, uint64_t addr, uint32_t bytes);
/* The same; on failure the grid is ended with the line that says why. */
void *sg_resolve_or_fault(struct sg_warp *w, const struct sg_insn *in, uint32_t lane, uint8_t space,
	uint64_t addr, uint32_t bytes);

/* exec_move.c */
SG_HANDLER(sg_mov32);
SG_HANDLER(sg_mov64);
SG_HANDLER(sg_mov_pack);
SG_HANDLER(sg_mov_unpack);
SG_HANDLER(sg_mov_address); /* of a shared or local variable */
SG_HANDLER(sg_mov_clock);
SG_HANDLER(sg_nop);

/* exec_sync.c */
enum sg_warp_op {
	SG_W_SHFL_UP,
	SG_W_SHFL_DOWN,
	SG_W_SHFL_BFLY,
	SG_W_SHFL_IDX,
	SG_W_ALL,
	SG_W_ANY,
	SG_W_UNI,
	SG_W_BALLOT,
	SG_W_MATCH_ANY,
	SG_W_MATCH_ALL,
	SG_W_REDUX,
	SG_W_BAR,
	SG_W_ELECT
};
enum sg_bar_op { SG_BAR_SYNC, SG_BAR_ARRIVE, SG_BAR_POPC, SG_BAR_AND, SG_BAR_OR };
SG_HANDLER(sg_warp_op);
SG_HANDLER(sg_activemask);
SG_HANDLER(sg_bar);
SG_HANDLER(sg_cluster_bar);
void sg_warp_sync_check(struct sg_warp *w);
void sg_bar_recheck(struct sg_warp *w);

/* exec_mma.c */
SG_HANDLER(sg_mma);
SG_HANDLER(sg_ldmatrix);
SG_HANDLER(sg_stmatrix);
SG_HANDLER(sg_movmatrix);
SG_HANDLER(sg_mma_quad); /* exec_quad.c */
void sg_aligned_check(struct sg_warp *w);
/* Whether all 32 lanes are here. If not, the path waits, or the launch ends. */
bool sg_whole_warp(struct sg_warp *w, const struct sg_insn *in, uint32_t mask);
/* Element i of a 32-bit register of a matrix; T_PRED: one bit. */
double sg_matrix_element(uint8_t type, uint32_t v, uint32_t i);
/* A sum as a register of type F16 (low half), S32 or F32. */
uint32_t sg_matrix_result(const struct sg_insn *in, uint8_t type, double v);

/* exec_wmma.c */
SG_HANDLER(sg_wmma_load);
SG_HANDLER(sg_wmma_store);
SG_HANDLER(sg_wmma_load_lines);
SG_HANDLER(sg_wmma_mma);

/* exec_ctrl.c */
SG_HANDLER(sg_bra);
SG_HANDLER(sg_brx);
SG_HANDLER(sg_call);
SG_HANDLER(sg_ret);
SG_HANDLER(sg_exit);
SG_HANDLER(sg_trap);
SG_HANDLER(sg_yield);
SG_HANDLER(sg_unsupported);
/* Argument number k (up to 8 bytes, zero-extended) of a call in one lane; its first result. */
uint64_t sg_call_arg(struct sg_warp *w, const struct sg_insn *in, uint32_t k, int lane);
void sg_call_result(struct sg_warp *w, const struct sg_insn *in, int lane, uint64_t v);
/* exec_call.c: functions that the device provides */
void sg_builtin(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_func *f, uint32_t mask);

/* exec.c */
struct sg_frame *sg_frame_new(
	struct sg_warp *w, const struct sg_func *f, struct sg_frame *parent, uint32_t mask);
void sg_frame_drop(struct sg_warp *w, struct sg_frame *f, uint32_t mask); /* lanes leave f */
/* Makes a path of its own of lanes of the current one. */
struct sg_path *sg_split(struct sg_warp *w, uint32_t mask, uint32_t pc);
/* The current path stays at its instruction, in the given state, with these lanes; the others go
 * on. */
struct sg_path *sg_wait(struct sg_warp *w, uint32_t mask, enum sg_state state);
static inline void sg_resched(struct sg_warp *w)
{
	w->stop_pc = 0;
}
void sg_lanes_exit(struct sg_warp *w, uint32_t mask);
enum sg_ran { SG_RAN_MORE, SG_RAN_ENDED, SG_RAN_FAILED };
enum sg_ran sg_block_run(struct sg_block *b);
struct sg_block *sg_block_new(
	struct sg_grid *g, uint64_t linear, uint32_t sm, struct sg_cluster *cluster, uint32_t rank);
/* Notes an instruction that loops use to wait for another thread. */
void sg_spin(struct sg_warp *w, uint32_t weight);
void sg_block_free(struct sg_block *b);
/* Ends the grid with an error; the first one prints the line. lane < 0: the whole warp. */
void sg_fault(struct sg_warp *w, const struct sg_insn *in, CUresult error, int lane,
	const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void sg_grid_fail(struct sg_grid *g, CUresult error, const char *line);
uint64_t sg_random(uint64_t *state);

/* Writes what printf gathered. */
void sg_output_flush(struct sg_grid *g);

void sg_objects_free(struct sg_device *dev); /* texture.c */

/* decode.c, decode_ops.c */
struct sg_dec;
CUresult sg_decode_module(struct sg_module *m, struct diag *d);

#endif
