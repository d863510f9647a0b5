/* The session file: made, opened by others, filled by several processes at once, refused when
 * damaged. */
#include "map_fixture.h"

#include <sys/resource.h>

static void test_create_and_open(void)
{
	struct session *s = NULL, *again = NULL, *second = NULL;
	struct diag d = { 0 };
	struct stat st;
	is_int(session_create(&s, &d), 0, "a session is made: %s", d.text);
	is_int(stat(session_path(s), &st) ? 0 : st.st_mode & 07777, 0700, "its directory is 0700");
	char path[400], want[128];
	snprintf(path, sizeof(path), "%s/session", session_path(s));
	is_int(stat(path, &st) ? 0 : st.st_mode & 07777, 0600, "its file is 0600");
	is_int(st.st_size, sizeof(struct session_file), "its file has its full size");
	ok(st.st_blocks * 512 < 1 << 20, "and is sparse: %lld bytes",
		(long long)st.st_blocks * 512);
	snprintf(want, sizeof(want), "%s/egpu-%u-%d-", fixture_root, (unsigned)geteuid(),
		(int)getpid());
	ok(!strncmp(session_path(s), want, strlen(want)), "its name tells user and process");
	is_int(session_create(&second, &d), 0, "a process may have two");
	is_int(session_open(session_path(s), &again, &d), 0, "it can be opened: %s", d.text);
	session_data(s)->next_launch = 77;
	is_int(session_data(again)->next_launch, 77, "both see the same memory");
	char dirs[4][256];
	is_int(session_list(dirs, 4), 2, "both are listed");
	is_str(dirs[0], session_path(second), "the newest first");
	session_destroy(second);
	session_destroy(again);
	ok(fixture_exists(s, "session"), "who opened it does not remove it");
	session_destroy(s);
	is_int(session_list(dirs, 4), 0, "who made it does");
	session_destroy(NULL);
	session_close(NULL);
}

static void test_progs_and_links(void)
{
	struct session *s, *t;
	struct diag d = { 0 };
	char *text = NULL, long_pattern[SESSION_PATTERN_BYTES + 1];
	size_t size = 0;
	uint32_t id = 99;
	session_create(&s, NULL);
	session_open(session_path(s), &t, NULL);
	is_int(session_add_prog(s, "fragment", 8, "count", EBPF_POINT_LOAD, true, &id, &d), 0,
		"a program is stored");
	is_int(id, 0, "ids are dense from 0");
	is_int(session_read_prog(t, 0, &text, &size), 0, "and read");
	ok(size == 8 && text && !strcmp(text, "fragment"), "whole and terminated");
	free(text);
	is_int(session_read_prog(t, 1, &text, &size), -ENOENT, "a program that is not there");
	is_int(session_read_prog(t, 1u << 31, &text, &size), -ENOENT, "a program out of range");
	is_int(session_add_link(s, 0, EBPF_POINT_LOAD, true, "k*", &id, &d), 0, "a link is made");
	is_int(session_data(t)->generation, 1, "the generation moves");
	is_str(session_data(t)->links[0].pattern, "k*", "its pattern is stored");
	is_int(session_add_link(s, 5, EBPF_POINT_LOAD, true, "k*", &id, &d), -ENOENT,
		"a link of no program");
	memset(long_pattern, 'x', SESSION_PATTERN_BYTES);
	long_pattern[SESSION_PATTERN_BYTES] = '\0';
	is_int(session_add_link(s, 0, EBPF_POINT_LOAD, true, long_pattern, &id, NULL), -E2BIG,
		"a pattern that is too long");
	is_int(session_detach_link(s, 0), 0, "a link is detached");
	is_int(session_detach_link(s, 0), -ENOENT, "once");
	is_int(session_detach_link(s, 64), -ENOENT, "a link out of range");
	is_int(session_data(t)->generation, 2, "the generation moves again");
	int err = 0, n = 0;
	while (!err && ++n < 200)
		err = session_add_link(s, 0, EBPF_POINT_LOAD, true, "k", &id, NULL);
	ok(err == -ENOSPC && n == 64, "the table fills: %d", n);
	for (err = 0, n = 1; !err && n < 200; n++)
		err = session_add_prog(s, "", 0, "p", EBPF_POINT_LOAD, false, &id, NULL);
	ok(err == -ENOSPC && n == 65, "as does that of programs: %d", n);
	session_close(t);
	session_destroy(s);
}

static void test_texts(void)
{
	struct session *s;
	session_create(&s, NULL);
	session_string a = session_add_text(s, "ld.global.f32"),
		       b = session_add_text(s, "ld.global.f32");
	ok(a && a == b, "a text is stored once");
	is_str(session_text(s, a), "ld.global.f32", "and found");
	is_int(session_add_text(s, ""), 0, "the empty text is 0");
	is_str(session_text(s, 0), "", "0 is the empty text");
	is_str(session_text(s, SESSION_STRING_BYTES), "", "an offset past the end");
	is_str(session_text(s, UINT32_MAX), "", "an offset far past the end");
	session_data(s)->strings[SESSION_STRING_BYTES - 1] = 'x';
	is_str(session_text(s, SESSION_STRING_BYTES - 1), "", "a text without an end");
	char big[65000];
	memset(big, 'y', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	int n = 0;
	for (session_string at = 1; at && n < 1000; n++) {
		big[n] = 'z';
		at = session_add_text(s, big);
	}
	ok(n > 250 && n < 260, "the area fills: %d", n);
	ok(session_data(s)->strings_used <= SESSION_STRING_BYTES, "and is never overrun");
	ok(session_add_text(s, "small") != 0, "a small text still fits");
	session_destroy(s);
}

static void test_kernels_and_sites(void)
{
	struct session *s;
	uint32_t id, first;
	bool created;
	session_create(&s, NULL);
	is_int(session_add_kernel(s, 1, "k", &id, &created), 0, "a kernel is claimed");
	ok(id == 0 && created, "as row 0");
	session_add_kernel(s, 2, "k", &id, &created);
	ok(id == 1 && created, "the same name in another image is another kernel");
	session_add_kernel(s, 1, "k", &id, &created);
	ok(id == 0 && !created, "the same kernel is found");
	is_int(session_add_sites(s, 10, &first), 0, "sites are taken");
	session_add_sites(s, 5, &first);
	is_int(first, 10, "one after the other");
	is_int(session_add_sites(s, SESSION_MAX_SITES, &first), -ENOSPC, "more than there are");
	is_int(session_data(s)->sites_lost, SESSION_MAX_SITES, "are counted as lost");
	is_int(session_add_sites(s, SESSION_MAX_SITES - 15, &first), 0, "the rest fits exactly");
	is_int(session_add_sites(s, 1, &first), -ENOSPC, "and no more");
	session_data(s)->n_kernels = UINT32_MAX;
	session_data(s)->n_sites = UINT32_MAX;
	is_int(session_add_kernel(s, 9, "k", &id, &created), -ENOSPC,
		"a count from a hostile file claims nothing");
	is_int(session_add_sites(s, 1, &first), -ENOSPC, "nor sites");
	session_destroy(s);
}

/* 4 processes claim the same 300 kernels and 50 sites each: every kernel must have one row. */
static void test_many_processes(void)
{
	struct session *s;
	char name[32];
	session_create(&s, NULL);
	for (int p = 0; p < 4; p++)
		if (!fork()) {
			struct session *mine;
			uint32_t id, first, claimed = 0;
			bool created;
			if (session_open(session_path(s), &mine, NULL) ||
				session_join(mine, getpid()))
				_exit(200);
			for (int i = 0; i < 300; i++) {
				snprintf(name, sizeof(name), "kernel%d", (i * 7 + p * 31) % 300);
				if (session_add_kernel(mine, 42, name, &id, &created))
					_exit(201);
				claimed += created;
			}
			for (int i = 0; i < 50; i++)
				session_add_sites(mine, 3, &first);
			session_leave(mine, getpid());
			session_close(mine);
			_exit((int)(claimed & 127));
		}
	int status, bad = 0;
	while (wait(&status) > 0)
		bad += !WIFEXITED(status) || WEXITSTATUS(status) >= 200;
	is_int(bad, 0, "every process got its rows");
	is_int(session_data(s)->n_kernels, 300, "no kernel has two rows");
	is_int(session_data(s)->n_sites, 600, "sites are counted exactly");
	int agents = 0, ended = 0;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++) {
		agents += session_data(s)->agents[i].pid != 0;
		ended += session_data(s)->agents[i].ended == 1;
	}
	ok(agents >= 1 && agents <= 4 && ended == agents, "agents joined and left: %d, %d", agents,
		ended);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		session_data(s)->agents[i] = (struct session_agent){ .pid = 1, .start_time = 1 };
	session_data(s)->agents[17].pid = 0x7ffffff0;
	is_int(session_join(s, getpid()), 0, "the row of a dead agent is taken");
	is_int(session_data(s)->agents[17].pid == (uint32_t)getpid() ||
			session_data(s)->agents[0].pid == (uint32_t)getpid(),
		1, "over");
	session_destroy(s);
}

/* A row that was taken tells nothing of who had it before: neither trouble, nor what was held or missed. */
static void test_dead_rows(void)
{
	struct session *s;
	session_create(&s, NULL);
	struct session_agent *rows = session_data(s)->agents, *mine = &rows[17];
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		rows[i] = (struct session_agent){ .pid = (uint32_t)getppid() };
	*mine = (struct session_agent){ .pid = 0x7ffffff0, .start_time = 1, .ended = 1, .syncs = 2, .clock_error_ns = 3, .late = 1, .hooked = 1,
		.trouble = session_add_text(s, "no memory"), .graphs_unseen = 4, .holds = 5, .held_ns = 6, .held_max_ns = 7 };
	is_int(session_join(s, getpid()), 0, "the only row of a dead agent is taken");
	ok(mine->pid == (uint32_t)getpid() && mine->start_time > 1, "and is this process's");
	ok(!mine->ended && !mine->late && !mine->hooked, "which came with its program, and has not ended");
	ok(!mine->trouble && !mine->syncs && !mine->clock_error_ns, "has had no trouble and measured nothing");
	ok(!mine->graphs_unseen && !mine->holds && !mine->held_ns && !mine->held_max_ns, "and has missed and held nothing");
	session_destroy(s);
}

/* As many processes as there are rows, all of dead agents, come at once: each has one, and keeps it. False: one has lost it. */
static bool join_at_once(struct session *s)
{
	struct session_agent *rows = session_data(s)->agents;
	pid_t pids[SESSION_MAX_AGENTS];
	int go[2], joined[2], kept = 0, status;
	char c;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		rows[i] = (struct session_agent){ .pid = 0x7ffffff0, .start_time = 1, .has_box = rows[i].has_box };
	if (pipe(go) || pipe(joined))
		return false;
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (!(pids[i] = fork())) {
			alarm(30);
			close(go[1]);
			bool none = read(go[0], &c, 1);
			_exit(none || session_join(s, getpid()) || write(joined[1], "", 1) != 1 || pause());
		}
	close(go[0]);
	close(go[1]);
	close(joined[1]);
	for (int i = 0; i < SESSION_MAX_AGENTS && read(joined[0], &c, 1) == 1; i++)
		;
	close(joined[0]);
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		for (int k = 0; k < SESSION_MAX_AGENTS; k++)
			kept += rows[k].pid == (uint32_t)pids[i];
	for (int i = 0; i < SESSION_MAX_AGENTS; i++)
		if (pids[i] > 0 && !kill(pids[i], SIGKILL))
			waitpid(pids[i], &status, 0);
	return kept == SESSION_MAX_AGENTS;
}

static void test_joins_at_once(void)
{
	struct session *s;
	int good = 0;
	session_create(&s, NULL);
	for (int i = 0; i < 20; i++)
		good += join_at_once(s);
	is_int(good, 20, "of processes that take rows of dead agents at once, each keeps its own");
	session_destroy(s);
}

static void test_refusals(void)
{
	struct session *s, *t = NULL;
	struct diag d = { 0 };
	char path[400], dir[300];
	session_create(&s, NULL);
	snprintf(path, sizeof(path), "%s/session", session_path(s));
	snprintf(dir, sizeof(dir), "%s", session_path(s));
	is_int(session_open("/nonexistent", &t, &d), -ENOENT, "a directory that is not there");
	ok(strstr(d.text, "/nonexistent") != NULL, "is named: %s", d.text);
	is_int(session_open("", &t, NULL), -ENAMETOOLONG, "no name");
	session_data(s)->magic = 0;
	is_int(session_open(dir, &t, NULL), -EINVAL, "no magic");
	session_data(s)->magic = SESSION_MAGIC;
	session_data(s)->version++;
	is_int(session_open(dir, &t, NULL), -EPROTO, "another version");
	d = (struct diag){ 0 };
	is_int(session_of_process(getpid(), &t, &d), -EPROTO, "a process in a session of another version");
	ok(strstr(d.text, "another version") && strstr(d.text, dir), "is said to be: %s", d.text);
	is_int(session_of_process(getppid(), &t, NULL), -ESRCH, "another process is not");
	session_data(s)->version--;
	chmod(dir, 0755);
	is_int(session_open(dir, &t, NULL), -EPERM, "a directory open to others");
	chmod(dir, 0700);
	chmod(path, 0622);
	is_int(session_open(dir, &t, NULL), -EPERM, "a file that others can write");
	chmod(path, 0600);
	char link[400], away[400];
	snprintf(link, sizeof(link), "%s/link", fixture_root);
	ok(!symlink(dir, link) && session_open(link, &t, NULL) < 0, "a link to a session");
	unlink(link);
	snprintf(away, sizeof(away), "%s/away", session_path(s));
	ok(!rename(path, away) && !symlink(away, path) && session_open(dir, &t, NULL) < 0,
		"a session file that is a link");
	unlink(path);
	ok(!mkfifo(path, 0600) && session_open(dir, &t, NULL) < 0,
		"a session file that is a FIFO does not hang");
	unlink(path);
	rename(away, path);
	is_int(session_open(dir, &t, NULL), 0, "and it opens when all is well");
	session_close(t);
	is_int(truncate(path, 4096), 0, "cut short");
	is_int(session_open(dir, &t, NULL), -EPROTO, "a short file");
	is_int(truncate(path, sizeof(struct session_file)), 0, "and again whole");
	session_destroy(s);
	setenv("EGPU_DIR", "/proc/1/nowhere", 1);
	d = (struct diag){ 0 };
	ok(session_create(&s, &d) < 0, "a root that cannot be written: %s", d.text);
	setenv("EGPU_DIR", fixture_root, 1);
}

int main(void)
{
	fixture_make();
	test_create_and_open();
	test_progs_and_links();
	test_texts();
	test_kernels_and_sites();
	test_many_processes();
	test_dead_rows();
	test_joins_at_once();
	test_refusals();
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
