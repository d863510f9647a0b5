/* Random programs that the verifier accepts give the same in the interpreter that runs inside kernels as in the one on the host.
 *
 * usage: live_random [LIBRARY [PROGRAMS [SEED]]]
 */
#include "tap.h"

#include "cpu/interp.h"
#include "device.h"
#include "live/object.h"
#include "live/program.h"
#include "map/map.h"
#include "random.h"
#include "translate/translate.h"

enum { MEMORY = RANDOM_MEMORY, VALUE = RANDOM_VALUE, WRAPPER = 9, CODE_BYTES = 65536 };

static struct device *device;
static struct ebpf_map map = { .name = "m",
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = 4,
	.value_size = VALUE,
	.max_entries = 1 };
static uint64_t buffers, image, code; /* memory and result; the map; list and program */

static void *value_of(void *self, uint32_t m)
{
	return self;
}

static const struct interp_ops ops = { .value = value_of };

static void imm64(struct bpf_insn *to, uint8_t dst, uint64_t v)
{
	to[0] = (struct bpf_insn){ .code = BPF_LD | BPF_IMM | BPF_DW, .dst_reg = dst, .imm = (int32_t)v };
	to[1] = (struct bpf_insn){ .imm = (int32_t)(v >> 32) };
}

/* A live program gets a context and gives no result: calls the program with the buffer, stores what it returns. */
static void wrap(const struct random_program *p, const struct verifier_result *v, struct ebpf_program *e, struct verifier_result *w,
	struct arena *arena)
{
	struct bpf_insn *to = arena_array(arena, WRAPPER + p->n, sizeof(*to));
	imm64(to, 1, buffers);
	imm64(to + 2, 2, MEMORY);
	to[4] = (struct bpf_insn){ .code = BPF_JMP | BPF_CALL, .src_reg = BPF_PSEUDO_CALL, .imm = WRAPPER - 5 };
	imm64(to + 5, 1, buffers + MEMORY);
	to[7] = (struct bpf_insn){ .code = BPF_STX | BPF_MEM | BPF_DW, .dst_reg = 1, .src_reg = 0 };
	to[8] = (struct bpf_insn){ .code = BPF_JMP | BPF_EXIT };
	memcpy(to + WRAPPER, p->insns, p->n * sizeof(*to));
	*e = (struct ebpf_program){
		.name = "random", .insns = to, .n_insns = WRAPPER + p->n, .context = EBPF_CONTEXT_ENTRY, .maps = &map, .n_maps = 1
	};
	*w = *v;
	w->max_run_insns += WRAPPER;
	w->max_frames++;
	w->n_subprogs++;
	w->subprogs = arena_array(arena, w->n_subprogs, sizeof(*w->subprogs));
	for (uint32_t k = 0; k < v->n_subprogs; k++)
		w->subprogs[k + 1] = (struct ebpf_subprog){ v->subprogs[k].start + WRAPPER, v->subprogs[k].depth };
	w->facts = arena_array(arena, e->n_insns, sizeof(*w->facts));
}

/* What an agent does: addresses into the program, the program to the device, its address into a list. */
static bool publish(const struct buf *object)
{
	struct diag d = { 0 };
	const struct live_object *o;
	const struct live_reloc *relocs;
	const uint64_t *insns;
	static uint64_t words[CODE_BYTES / 8];
	struct live_program *p = (struct live_program *)words;
	struct live_list list = { .n = 1, .programs = { code + LIVE_ALIGN } };
	if (live_object_parse(object->data, object->len, &o, &relocs, &insns, &d))
		return false;
	*p = (struct live_program){ .n_insns = o->n_insns, .flags = o->flags, .budget = o->budget, .sms = 1, .ops = o->ops };
	memcpy(p->insns, insns, o->n_insns * 8);
	for (uint32_t k = 0; k < o->n_relocs; k++) {
		uint64_t at = image + relocs[k].offset, *lo = &p->insns[relocs[k].insn];
		lo[0] |= at << 32;
		lo[1] |= at >> 32 << 32;
	}
	return device_write(device, code, &list, sizeof(list)) &&
	       device_write(device, code + LIVE_ALIGN, words, sizeof(*p) + o->n_insns * 8);
}

static bool run_live(struct device_module *m, const struct buf *object, struct random_program *p, uint64_t *r0)
{
	const uint32_t one[3] = { 1, 1, 1 };
	return publish(object) && device_write(device, buffers, p->memory, MEMORY) &&
	       device_write(device, image + MAP_IMAGE_HEADER, p->value, VALUE) && device_launch(device, m, "live", one, one, &code, 1) &&
	       device_wait(device) && device_read(device, p->memory, buffers, MEMORY) && device_read(device, r0, buffers + MEMORY, 8) &&
	       device_read(device, p->value, image + MAP_IMAGE_HEADER, VALUE);
}

static uint32_t n_atomic; /* updates */

/* What the loader would make atomic. Programs give no result there, so that r0 may be what would have been added. */
static uint32_t find_updates(const struct ebpf_program *e, const struct verifier_result *v, struct arena *arena, struct ebpf_update *to)
{
	struct ebpf_program p = *e;
	struct verifier_result races = *v;
	struct ebpf_fragment f = { 0 };
	struct diag d = { 0 };
	p.context = EBPF_CONTEXT_ENTRY;
	races.allow_races = true;
	if (translate_program(arena, &p, &races, EBPF_POINT_EXIT, false, &f, &d)) {
		printf("# %s\n", d.text);
		return 0;
	}
	for (uint32_t k = 0; k < f.n_updates; k++)
		to[k] = (struct ebpf_update){ f.updates[k].load + WRAPPER, f.updates[k].store + WRAPPER, f.updates[k].op };
	return f.n_updates;
}

/* Whether the program gives the same in both; false counts. */
static bool one(struct device_module *m, struct random_program *p, const struct ebpf_program *e, const struct verifier_result *v)
{
	struct arena *arena = arena_new();
	struct ebpf_program wrapped;
	struct verifier_result w;
	struct buf object = { 0 };
	struct diag d = { 0 };
	struct random_program on_cpu = *p;
	struct interp run = {
		.program = e, .memory = on_cpu.memory, .ops = &ops, .self = on_cpu.value, .max_insns = v->max_run_insns, .check = true
	};
	struct interp_result r = { 0 };
	uint64_t r0 = ~0ull;
	if (interp_run(&run, &r))
		printf("# interpreter: %s\n", r.violation);
	wrap(p, v, &wrapped, &w, arena);
	struct ebpf_update updates[RANDOM_INSNS];
	uint32_t n_updates = find_updates(e, v, arena, updates);
	bool atomic = !live_encode(&wrapped, &w, updates, n_updates, EBPF_POINT_ENTRY, false, &object, &d);
	n_atomic += atomic ? n_updates : 0;
	if (!atomic)
		buf_free(&object);
	bool same = (atomic || !live_encode(&wrapped, &w, NULL, 0, EBPF_POINT_ENTRY, false, &object, &d)) && run_live(m, &object, p, &r0) && (r0 == r.r0 || n_updates) &&
		    !memcmp(on_cpu.memory, p->memory, MEMORY) && !memcmp(on_cpu.value, p->value, VALUE);
	if (!same)
		printf("# %s r0 0x%llx, on the device 0x%llx\n", d.text, (unsigned long long)r.r0, (unsigned long long)r0);
	buf_free(&object);
	arena_free(arena);
	return same;
}

/* A kernel that does what a guard does once its word is set. */
static struct device_module *load_kernel(void)
{
	struct arena *arena = arena_new();
	struct ebpf_fragment guard;
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	if (live_guard(arena, LIVE_ENTRY, 0, &guard, &d))
		return NULL;
	buf_printf(&ptx, ".version 7.0\n.target sm_75\n.address_size 64\n%s", guard.funcs[0].text);
	buf_puts(&ptx, ".visible .entry live(.param .u64 list)\n{\n\t.reg .b64 %l;\n\tld.param.u64 %l, [list];\n");
	for (int k = 0; k < 3; k++)
		buf_printf(&ptx, "\t.param .b64 a%d;\n\tst.param.b64 [a%d], %s;\n", k, k, k ? "0" : "%l");
	buf_puts(&ptx, "\tcall " LIVE_AT ", (a0, a1, a2);\n\tret;\n}\n");
	struct device_module *m = device_load(device, ptx.data);
	buf_free(&ptx);
	arena_free(arena);
	return m;
}

static void prepare(void)
{
	uint64_t bytes = map_image_bytes(map.type, 4, VALUE, 1, 1);
	struct map_image header = { 0 };
	buffers = device_alloc(device, 128);
	image = device_alloc(device, bytes);
	code = device_alloc(device, CODE_BYTES);
	map_image_init(&header, map.type, 4, VALUE, 1, 1);
	device_write(device, image, &header, sizeof(header));
}

int main(int argc, char **argv)
{
	const char *why, *library = argc > 1 ? argv[1] : NULL;
	uint32_t programs = argc > 2 ? (uint32_t)atoi(argv[2]) : getenv("EGPU_SANITIZED") ? 300 : 3000, differ = 0, refused = 0;
	random_state = argc > 3 ? strtoull(argv[3], NULL, 0) : 0x6a09e667f3bcc908ull;
	device = device_open_own(library, &why);
	if (!device) {
		tap_skip(why);
		return tap_done();
	}
	prepare();
	random_aligned = true;
	struct device_module *m = load_kernel();
	ok(m != NULL, "the interpreter's text can be compiled into a module");
	for (uint32_t done = 0; m && done < programs && refused < 100 * programs;) {
		static struct random_program p;
		struct arena *arena = arena_new();
		struct verifier_result v;
		struct diag d = { 0 };
		random_program(&p);
		struct ebpf_program e = {
			.name = "random", .insns = p.insns, .n_insns = p.n, .memory_bytes = MEMORY, .maps = &map, .n_maps = 1
		};
		if (verifier_check(arena, &e, NULL, &v, NULL, &d)) {
			refused++;
		} else {
			for (uint32_t b = 0; b < MEMORY; b++) {
				p.memory[b] = (uint8_t)random_next(256);
				p.value[b] = (uint8_t)random_next(256);
			}
			differ += !one(m, &p, &e, &v);
			done++;
		}
		arena_free(arena);
	}
	is_int(differ, 0, "%u random programs give inside a kernel what they give on the host (%u refused)", programs, refused);
	ok(!m || n_atomic > programs / 4, "updates by load and store are atomics there (%u)", n_atomic);
	device_unload(device, m);
	device_close(device);
	return tap_done();
}
