/* BPF_OBJ_GET_INFO_BY_FD. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "egpu/probe.bpf.h"
#include "syscall/object.h"

static void *user(uint64_t address)
{
	return (void *)(uintptr_t)address;
}

static void info_map(struct loader *l, const struct object *o, struct bpf_map_info *out)
{
	const struct session_map *row = &session_data(l->options.session)->maps[o->map.id];
	uint32_t threads = map_threads_of(row);
	out->type = threads ? EGPU_MAP_TYPE_THREAD_ARRAY : row->type;
	out->id = o->id;
	out->key_size = row->key_size;
	out->value_size = row->value_size;
	out->max_entries = threads ? row->max_entries / threads : row->max_entries;
	out->map_flags = row->flags;
	out->map_extra = row->extra;
	memcpy(out->name, row->name, sizeof(out->name));
	if (o->map.btf) {
		out->btf_id = o->map.btf->id;
		out->btf_key_type_id = row->btf_key_type_id;
		out->btf_value_type_id = row->btf_value_type_id;
	}
}

/* map_ids is the caller's array of nr_map_ids. Code is not given out, as to one without CAP_BPF. */
static int info_prog(
	const struct object *o, const struct bpf_prog_info *given, struct bpf_prog_info *out)
{
	uint32_t *ids = user(given->map_ids), room = given->nr_map_ids;
	if (room && !ids)
		return -EFAULT;
	for (uint32_t i = 0; i < o->prog.n_maps && i < room; i++)
		ids[i] = o->prog.maps[i]->id;
	out->map_ids = given->map_ids;
	out->nr_map_ids = o->prog.n_maps;
	out->type = o->prog.type;
	out->id = o->id;
	out->created_by_uid = (uint32_t)geteuid();
	memcpy(out->name, o->prog.name, sizeof(out->name));
	out->gpl_compatible = 1;
	out->btf_id = o->prog.btf ? o->prog.btf->id : 0;
	if (o->prog.report)
		out->verified_insns = o->prog.report->info.verified.processed_insns;
	return 0;
}

static int info_btf(
	const struct object *o, const struct bpf_btf_info *given, struct bpf_btf_info *out)
{
	uint32_t n = given->btf_size < o->btf.size ? given->btf_size : o->btf.size;
	if (n && !given->btf)
		return -EFAULT;
	if (n)
		memcpy(user(given->btf), o->btf.data, n);
	out->btf = given->btf;
	out->btf_size = o->btf.size;
	out->id = o->id;
	return 0;
}

/* A name that does not fit is cut, terminated, and -ENOSPC. */
static int info_link(
	const struct object *o, const struct bpf_link_info *given, struct bpf_link_info *out)
{
	uint32_t room = given->raw_tracepoint.tp_name_len,
		 need = (uint32_t)strlen(o->link.name) + 1;
	char *to = user(given->raw_tracepoint.tp_name);
	if (!to != !room)
		return -EINVAL;
	out->type = BPF_LINK_TYPE_RAW_TRACEPOINT;
	out->id = o->id;
	out->prog_id = o->link.prog->id;
	out->raw_tracepoint.tp_name = given->raw_tracepoint.tp_name;
	out->raw_tracepoint.tp_name_len = need;
	if (!to)
		return 0;
	memcpy(to, o->link.name, need <= room ? need : room);
	to[(need <= room ? need : room) - 1] = '\0';
	return need <= room ? 0 : -ENOSPC;
}

COMMAND(object_info)
{
	union {
		struct bpf_map_info map;
		struct bpf_prog_info prog;
		struct bpf_btf_info btf;
		struct bpf_link_info link;
	} in, out;
	struct object *o;
	uint32_t len = attr->info.info_len, known;
	void *to = user(attr->info.info);
	int err = object_by_fd(l, (int)attr->info.bpf_fd, OBJECT_KINDS, &o);
	if (err)
		return err;
	if (!to)
		return -EFAULT;
	memset(&in, 0, sizeof(in));
	memset(&out, 0, sizeof(out));
	known = o->kind == OBJECT_MAP    ? sizeof(in.map)
		: o->kind == OBJECT_PROG ? sizeof(in.prog)
		: o->kind == OBJECT_BTF  ? sizeof(in.btf)
					 : sizeof(in.link);
	if (len > known) { /* what we do not know must be zero */
		for (uint32_t i = known; i < len; i++)
			if (((char *)to)[i])
				return -E2BIG;
		len = known;
	}
	memcpy(&in, to, len);
	if (o->kind == OBJECT_MAP)
		info_map(l, o, &out.map);
	else if (o->kind == OBJECT_PROG)
		err = info_prog(o, &in.prog, &out.prog);
	else if (o->kind == OBJECT_BTF)
		err = info_btf(o, &in.btf, &out.btf);
	else
		err = info_link(o, &in.link, &out.link);
	if (err && err != -ENOSPC)
		return err;
	memcpy(to, &out, len);
	attr->info.info_len = len;
	return err;
}
