/* Random programs that the verifier accepts give the same result, memory and map on softgpu as in
 * the interpreter.
 *
 * usage: translate_random [LIBRARY [PROGRAMS [SEED]]]
 */
#include "tap.h"

#include "bpf/insns.h"
#include "cpu/interp.h"
#include "device.h"
#include "map/map.h"
#include "random.h"
#include "translate/translate.h"

enum { BATCH = 64, MEMORY = RANDOM_MEMORY, VALUE = RANDOM_VALUE };

static void *value_of(void *self, uint32_t map)
{
	return self;
}

static const struct interp_ops ops = { .value = value_of };
static struct device *device;
static struct ebpf_map map = { .name = "m",
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = 4,
	.value_size = VALUE,
	.max_entries = 1 };
static uint64_t buffers, image; /* one run's memory, result and table; the map */

static bool launch(
	struct device_module *m, uint32_t index, uint32_t of, struct random_program *p, uint64_t *r0)
{
	const uint32_t one[3] = { 1, 1, 1 };
	uint64_t args[3] = { buffers, buffers + MEMORY, buffers + 128 };
	char name[32];
	snprintf(name, sizeof(name), of == 1 ? "egpu_test" : "egpu_test%u", index);
	return device_write(device, buffers, p->memory, MEMORY) &&
	       device_write(device, image + MAP_IMAGE_HEADER, p->value, VALUE) &&
	       device_launch(device, m, name, one, one, args, 3) && device_wait(device) &&
	       device_read(device, p->memory, buffers, MEMORY) &&
	       device_read(device, r0, buffers + MEMORY, 8) &&
	       device_read(device, p->value, image + MAP_IMAGE_HEADER, VALUE);
}

static void show(const struct ebpf_program *e, const char *ptx)
{
	struct buf b = { 0 };
	ebpf_program_print(e, &b);
	for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n"))
		printf("# %s\n", line);
	buf_free(&b);
	if (getenv("SHOW_PTX"))
		puts(ptx);
}

/* How often the text says it. */
static uint32_t times(const char *text, const char *what)
{
	uint32_t n = 0;
	for (; text && (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* One batch: generates until BATCH programs are accepted; the number that differ. met: sums; minima and maxima. */
static uint32_t batch(uint32_t n, uint32_t *refused, uint32_t met[2])
{
	static struct random_program programs[BATCH];
	static struct ebpf_program e[BATCH];
	static const struct ebpf_program *list[BATCH];
	static struct verifier_result results[BATCH];
	struct arena *arena = arena_new();
	struct buf ptx = { 0 };
	struct diag d = { 0 };
	uint32_t differ = 0;
	for (uint32_t k = 0; k < n;) {
		random_program(&programs[k]);
		e[k] = (struct ebpf_program){ .name = "random",
			.insns = programs[k].insns,
			.n_insns = programs[k].n,
			.memory_bytes = MEMORY,
			.maps = &map,
			.n_maps = 1 };
		list[k] = &e[k];
		struct diag why = { 0 };
		if (verifier_check(arena, &e[k], NULL, &results[k], NULL, &why)) {
			if (getenv("SHOW_REFUSED"))
				printf("# %s\n", why.text);
			++*refused;
			if (*refused > 100 * n)
				break;
			continue;
		}
		for (uint32_t b = 0; b < MEMORY; b++) {
			programs[k].memory[b] = (uint8_t)random_next(256);
			programs[k].value[b] = (uint8_t)random_next(256);
		}
		k++;
	}
	struct device_module *m = NULL;
	if (translate_test_module(arena, list, results, n, device_target(device), &ptx, &d))
		printf("# %s\n", d.text);
	else
		m = device_load(device, ptx.data);
	met[0] += times(ptx.data, "red.global.add");
	met[1] += times(ptx.data, "red.global.min") + times(ptx.data, "red.global.max");
	for (uint32_t k = 0; k < n; k++) {
		struct random_program on_cpu = programs[k];
		struct interp run = { .program = &e[k],
			.memory = on_cpu.memory,
			.ops = &ops,
			.self = on_cpu.value,
			.max_insns = results[k].max_run_insns, /* as promised */
			.check = true };
		struct interp_result r = { 0 };
		uint64_t r0 = ~0ull;
		if (interp_run(&run, &r))
			printf("# interpreter: %s\n", r.violation);
		if (m && launch(m, k, n, &programs[k], &r0) && r0 == r.r0 &&
			!memcmp(on_cpu.memory, programs[k].memory, MEMORY) &&
			!memcmp(on_cpu.value, programs[k].value, VALUE))
			continue;
		if (!differ++) {
			printf("# r0 0x%llx, on the device 0x%llx; memory %s, map %s\n",
				(unsigned long long)r.r0, (unsigned long long)r0,
				memcmp(on_cpu.memory, programs[k].memory, MEMORY) ? "differs"
										  : "same",
				memcmp(on_cpu.value, programs[k].value, VALUE) ? "differs"
									       : "same");
			show(&e[k], ptx.data);
		}
	}
	device_unload(device, m);
	buf_free(&ptx);
	arena_free(arena);
	return differ;
}

int main(int argc, char **argv)
{
	const char *why, *library = argc > 1 ? argv[1] : NULL;
	/* The whole number in the one build that is fast and usual. */
	bool few = getenv("EGPU_SANITIZED") || strstr(argv[0], "tiny");
	uint32_t programs = argc > 2 ? (uint32_t)atoi(argv[2]) : few ? 1024 : 10000, differ = 0, refused = 0,
		 met[2] = { 0 };
	random_state = argc > 3 ? strtoull(argv[3], NULL, 0) : 0x853c49e6748fea9bull;
	device = device_open_own(library, &why);
	if (!device) {
		tap_skip(why);
		return tap_done();
	}
	uint64_t bytes = map_image_bytes(map.type, 4, VALUE, 1, 1),
		 table[EBPF_TABLE_SYMBOLS] = { 0 };
	buffers = device_alloc(device, 128 + sizeof(table));
	image = device_alloc(device, bytes);
	table[0] = image;
	table[EBPF_TABLE_SMS] = 1;
	device_write(device, buffers + 128, table, sizeof(table));
	for (uint32_t done = 0; done < programs; done += BATCH)
		differ +=
			batch(programs - done < BATCH ? programs - done : BATCH, &refused, met);
	is_int(differ, 0,
		"%u random programs give on the device what they give in the interpreter (%u "
		"refused)",
		programs, refused);
	ok(met[0] > programs / 8, "sums were met (%u times)", met[0]);
	ok(met[1] > programs / 8, "so were minima and maxima (%u times)", met[1]);
	device_free(device, buffers);
	device_free(device, image);
	device_close(device);
	return tap_done();
}
