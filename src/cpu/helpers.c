#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cpu/state.h"

/* A register that holds "the map" holds the address of its row: no program can make another number into a map. */
uint64_t interp_map_address(const struct interp *run, uint32_t map)
{
	return (uint64_t)(uintptr_t)&run->program->maps[map];
}

static int map_of(struct interp_state *s, uint64_t value, uint32_t *map)
{
	uint64_t offset = value - (uint64_t)(uintptr_t)s->run->program->maps;
	*map = (uint32_t)(offset / sizeof(struct ebpf_map));
	if (offset / sizeof(struct ebpf_map) >= s->run->program->n_maps || offset % sizeof(struct ebpf_map))
		return interp_stop(s, EINVAL, "argument is not a map");
	return 0;
}

static void *pointer(uint64_t value)
{
	return (void *)(uintptr_t)value;
}

static bool read_only(const struct ebpf_map *m)
{
	return m->frozen || (m->flags & BPF_F_RDONLY_PROG);
}

/* Arguments as the table describes them; *map is set when there is one. */
static int check_args(struct interp_state *s, const struct ebpf_helper *h, uint32_t *map)
{
	for (int k = 0; k < 5; k++) {
		uint64_t value = s->reg[k + 1];
		int err = h->args[k] == EBPF_ARG_NONE ? 0 : interp_reg_set(s, (uint32_t)k + 1);
		if (err)
			return err;
		const struct ebpf_map *m = &s->run->program->maps[*map];
		switch (h->args[k]) {
		case EBPF_ARG_MAP:
			err = map_of(s, value, map);
			break;
		case EBPF_ARG_KEY:
			err = interp_readable(s, value, m->key_size, 1);
			break;
		case EBPF_ARG_VALUE:
			err = interp_readable(s, value, m->value_size, 1);
			break;
		case EBPF_ARG_VALUE_OUT:
			err = m->type == BPF_MAP_TYPE_BLOOM_FILTER ? interp_readable(s, value, m->value_size, 1)
								     : interp_writable(s, value, m->value_size, 1);
			break;
		case EBPF_ARG_MEM:
			err = interp_readable(s, value, s->reg[k + 2], 1);
			break;
		case EBPF_ARG_STRING:
			for (uint32_t n = 0; !err && n < EBPF_MAX_STRING; n++) {
				err = interp_readable(s, value + n, 1, 1);
				if (!err && !*(const char *)pointer(value + n))
					break;
			}
			break;
		case EBPF_ARG_OUT:
			err = interp_writable(s, value, 8, 8);
			break;
		case EBPF_ARG_RING_RECORD:
			if (s->run->check && !interp_is_record(s, value))
				err = interp_stop(s, EFAULT, "argument is not a reserved record");
			break;
		default:
			break;
		}
		if (err)
			return err;
	}
	return 0;
}

static int do_lookup(struct interp_state *s, uint32_t map)
{
	const struct interp *run = s->run;
	const struct ebpf_map *m = &run->program->maps[map];
	void *value = run->ops && run->ops->lookup ? run->ops->lookup(run->self, map, pointer(s->reg[2])) : NULL;
	s->reg[0] = (uint64_t)(uintptr_t)value;
	return interp_region(s, value, m->value_size, !read_only(m), false);
}

static int do_reserve(struct interp_state *s, uint32_t map)
{
	const struct interp *run = s->run;
	void *record = run->ops && run->ops->ring_reserve ? run->ops->ring_reserve(run->self, map, s->reg[2]) : NULL;
	s->reg[0] = (uint64_t)(uintptr_t)record;
	return interp_region(s, record, s->reg[2], true, true);
}

static void do_commit(struct interp_state *s, bool discard)
{
	const struct interp *run = s->run;
	interp_forget(s, pointer(s->reg[1]));
	if (run->ops && run->ops->ring_commit)
		run->ops->ring_commit(run->self, pointer(s->reg[1]), discard, s->reg[2]);
}

static uint64_t put_string(struct interp_state *s)
{
	const struct interp *run = s->run;
	const char *text = pointer(s->reg[1]);
	uint32_t len = (uint32_t)strnlen(text, EBPF_MAX_STRING - 1);
	char format[2 * EBPF_MAX_STRING + 1];
	uint64_t args[3] = { 0 };
	uint32_t n = ebpf_puts_format(text, len, format);
	int64_t rc = run->ops && run->ops->trace ? run->ops->trace(run->self, format, n, args) : -EOPNOTSUPP;
	return (uint64_t)(rc < 0 ? rc : (int64_t)len + 1);
}

/* Helpers that only compute a number; -EOPNOTSUPP is what a service answers that is not there. */
static uint64_t call_service(struct interp_state *s, uint32_t number, uint32_t map)
{
	static const struct interp_ops none;
	const struct interp_ops *ops = s->run->ops ? s->run->ops : &none;
	void *self = s->run->self;
	const uint64_t *r = s->reg;
	switch (number) {
	case BPF_FUNC_map_update_elem:
		return (uint64_t)(ops->update ? ops->update(self, map, pointer(r[2]), pointer(r[3]), r[4]) : -EOPNOTSUPP);
	case BPF_FUNC_map_delete_elem:
		return (uint64_t)(ops->delete ? ops->delete(self, map, pointer(r[2])) : -EOPNOTSUPP);
	case BPF_FUNC_map_push_elem:
	case BPF_FUNC_map_pop_elem:
	case BPF_FUNC_map_peek_elem:
		return (uint64_t)(ops->keyless ? ops->keyless(self, map, number, pointer(r[2]), number == BPF_FUNC_map_push_elem ? r[3] : 0)
					       : -EOPNOTSUPP);
	case BPF_FUNC_get_stackid: /* the host's interpreter has no sites */
		return (uint64_t)-EOPNOTSUPP;
	case BPF_FUNC_ktime_get_ns:
		return ops->time_ns ? ops->time_ns(self) : 0;
	case BPF_FUNC_trace_printk:
		return (uint64_t)(ops->trace ? ops->trace(self, pointer(r[1]), (uint32_t)r[2], &r[3]) : -EOPNOTSUPP);
	case BPF_FUNC_get_prandom_u32:
		return ops->random ? ops->random(self) : 0;
	case BPF_FUNC_get_smp_processor_id:
		return ops->cpu ? ops->cpu(self) : 0;
	case BPF_FUNC_get_current_pid_tgid:
		return (uint64_t)getpid() << 32 | (uint64_t)getpid();
	case BPF_FUNC_perf_event_output:
		return (uint64_t)(ops->ring_output ? ops->ring_output(self, map, pointer(r[4]), r[5], 0) : -EOPNOTSUPP);
	case BPF_FUNC_ringbuf_output:
		return (uint64_t)(ops->ring_output ? ops->ring_output(self, map, pointer(r[2]), r[3], r[4]) : -EOPNOTSUPP);
	case EBPF_FUNC_puts:
		return put_string(s);
	default: /* ringbuf_query */
		return ops->ring_query ? ops->ring_query(self, map, r[2]) : 0;
	}
}

/* The i-th element: r2 and r3 of the function. */
static void *element(struct interp_state *s, struct interp_frame *f, const void **key)
{
	const struct interp_ops *ops = s->run->ops;
	const struct ebpf_map *m = &s->run->program->maps[f->map];
	if (ops && ops->each)
		return ops->each(s->run->self, f->map, (uint32_t)f->n, key);
	bool array = m->type == BPF_MAP_TYPE_ARRAY || m->type == BPF_MAP_TYPE_PERCPU_ARRAY;
	f->array_key = (uint32_t)f->n;
	*key = &f->array_key;
	return array && ops && ops->lookup ? ops->lookup(s->run->self, f->map, &f->array_key) : NULL;
}

/* Back behind the helper, whose result is the number of calls. */
static int leave(struct interp_state *s, struct interp_frame *f)
{
	if (f->map < s->run->program->n_maps && s->run->check)
		interp_forget(s, &f->array_key);
	memcpy(&s->reg[6], f->saved, sizeof(f->saved));
	s->n_frames--;
	s->at = f->back;
	s->reg[10] = (uint64_t)(uintptr_t)(s->frames[s->n_frames - 1].stack + EBPF_STACK_BYTES);
	s->reg[0] = f->n;
	s->set = (uint16_t)(0x7c1);
	return 0;
}

int interp_call_back(struct interp_state *s)
{
	struct interp_frame *f = &s->frames[s->n_frames - 1];
	bool each = f->helper->number == EBPF_FUNC_for_each_map_elem;
	const void *key = NULL;
	void *value = NULL;
	if ((f->n && s->reg[0]) || f->n >= f->limit || (each && !(value = element(s, f, &key))))
		return leave(s, f);
	memset(f->set, 0, sizeof(f->set));
	s->reg[10] = (uint64_t)(uintptr_t)(f->stack + EBPF_STACK_BYTES);
	int err = 0;
	if (each) {
		const struct ebpf_map *m = &s->run->program->maps[f->map];
		s->reg[1] = f->args[1];
		s->reg[2] = (uint64_t)(uintptr_t)key;
		s->reg[3] = (uint64_t)(uintptr_t)value;
		s->reg[4] = f->args[3];
		err = interp_region(s, (void *)(uintptr_t)key, m->key_size, false, false);
		if (!err)
			err = interp_region(s, value, m->value_size, !read_only(m), false);
	} else {
		s->reg[1] = f->n;
		s->reg[2] = f->args[3];
	}
	s->set = (uint16_t)(1 << 10 | (each ? 0x1e : 0x06));
	f->n++;
	s->at = (uint32_t)f->args[2] - 1;
	return err;
}

/* As the kernel: flags must be 0, and more loops than there may be are an error. */
static int start_calls(struct interp_state *s, const struct ebpf_helper *h, uint32_t map)
{
	bool each = h->number == EBPF_FUNC_for_each_map_elem;
	uint64_t flags = s->reg[4];
	const struct ebpf_map *m = &s->run->program->maps[map];
	if (flags || (!each && (uint32_t)s->reg[1] > EBPF_MAX_LOOPS)) {
		s->reg[0] = (uint64_t)(int64_t)(flags ? -EINVAL : -E2BIG);
		s->set = (uint16_t)((s->set & ~0x3f) | 1);
		return 0;
	}
	if (s->reg[2] >= s->run->program->n_insns)
		return interp_stop(s, EINVAL, "no such function");
	if (s->n_frames == INTERP_FRAMES)
		return interp_stop(s, EFAULT, "calls nested too deep");
	struct interp_frame *f = &s->frames[s->n_frames++];
	memcpy(f->saved, &s->reg[6], sizeof(f->saved));
	memcpy(f->args, s->reg, sizeof(f->args));
	f->back = s->at;
	f->helper = h;
	f->map = each ? map : UINT32_MAX;
	f->n = 0;
	f->limit = each ? m->max_entries : (uint32_t)s->reg[1];
	return interp_call_back(s);
}

static int call_gpu(struct interp_state *s, const struct ebpf_helper *h)
{
	const struct interp *run = s->run;
	uint64_t out[3] = { 0 }, args[2] = { s->reg[1], s->reg[2] };
	uint64_t result = run->ops && run->ops->gpu ? run->ops->gpu(run->self, h->number, args, out) : 0;
	for (int k = 0; k < 3; k++)
		if (h->args[k] == EBPF_ARG_OUT)
			memcpy(pointer(s->reg[k + 1]), &out[k], 8);
	s->reg[0] = result;
	return h->ret == EBPF_RET_NEVER ? 1 : 0;
}

int interp_helper(struct interp_state *s, uint32_t number)
{
	const struct ebpf_helper *h = ebpf_helper_by_number(number);
	uint32_t map = 0;
	if (!h)
		return interp_stop(s, EINVAL, "unknown helper");
	s->out->insns += h->cost;
	int err = check_args(s, h, &map);
	if (err)
		return err;
	if (ebpf_helper_calls_back(h))
		return start_calls(s, h, map);
	s->set &= (uint16_t)~0x3f;
	s->set |= h->ret != EBPF_RET_VOID;
	if (number >= EBPF_FUNC_get_globaltimer)
		return call_gpu(s, h);
	switch (number) {
	case BPF_FUNC_map_lookup_elem:
		return do_lookup(s, map);
	case BPF_FUNC_ringbuf_reserve:
		return do_reserve(s, map);
	case BPF_FUNC_ringbuf_submit:
	case BPF_FUNC_ringbuf_discard:
		do_commit(s, number == BPF_FUNC_ringbuf_discard);
		return 0;
	default:
		s->reg[0] = call_service(s, number, map);
		return 0;
	}
}
