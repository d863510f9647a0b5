/* Which sessions session_gc removes, and which it leaves alone. */
#include "map_fixture.h"

#include <sys/mman.h>

/* A child that makes a session, tells its path, and waits to be killed. */
static pid_t child_with_session(char path[256])
{
	int pipe_fd[2];
	if (pipe(pipe_fd))
		exit(99);
	pid_t pid = fork();
	if (!pid) {
		struct session *s;
		if (session_create(&s, NULL))
			_exit(1);
		if (write(pipe_fd[1], session_path(s), 256) != 256)
			_exit(1);
		pause();
		_exit(0);
	}
	close(pipe_fd[1]);
	if (read(pipe_fd[0], path, 256) != 256)
		exit(99);
	close(pipe_fd[0]);
	return pid;
}

/* A child that joins a session, as an agent or as a loader beside the maker. */
static pid_t child_joins(const char *path, bool agent)
{
	int pipe_fd[2];
	char c;
	if (pipe(pipe_fd))
		exit(99);
	pid_t pid = fork();
	if (!pid) {
		struct session *s;
		if (session_open(path, &s, NULL) || (agent ? session_join(s, getpid()) : session_enter(s, "beside", NULL)) ||
			write(pipe_fd[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(pipe_fd[1]);
	if (read(pipe_fd[0], &c, 1) != 1)
		exit(99);
	close(pipe_fd[0]);
	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_killed(void)
{
	char path[256];
	pid_t loader = child_with_session(path);
	is_int(session_gc(), 0, "a session with a live loader stays");
	end_child(loader);
	ok(!access(path, F_OK), "a killed loader leaves its directory");
	is_int(session_gc(), 1, "which is removed");
	ok(access(path, F_OK) != 0, "entirely");
	is_int(session_gc(), 0, "once");

	loader = child_with_session(path);
	pid_t agent = child_joins(path, true);
	end_child(loader);
	is_int(session_gc(), 0, "a live agent keeps it");
	end_child(agent);
	is_int(session_gc(), 1, "until it is dead too");

	loader = child_with_session(path);
	end_child(loader);
	struct session *reader;
	is_int(session_open(path, &reader, NULL), 0, "a reader opens what a dead loader left");
	is_int(session_gc(), 0, "and keeps it while it reads");
	session_close(reader);
	is_int(session_gc(), 1, "not longer");

	/* Not reaped: a zombie is dead. */
	loader = child_with_session(path);
	kill(loader, SIGKILL);
	siginfo_t info;
	waitid(P_PID, (id_t)loader, &info, WEXITED | WNOWAIT);
	is_int(session_gc(), 1, "a zombie holds nothing");
	waitpid(loader, NULL, 0);
}

/* A child makes a session, this one or a loader that is dead is in it too, and the maker removes it, or leaves it. */
static void maker_ends(char path[256], bool alive)
{
	int told[2], tell[2];
	if (pipe(told) || pipe(tell))
		exit(99);
	pid_t maker = fork();
	if (!maker) {
		struct session *s;
		char c;
		if (session_create(&s, NULL) || write(told[1], session_path(s), 256) != 256 || read(tell[0], &c, 1) != 1)
			_exit(1);
		session_destroy(s);
		_exit(0);
	}
	if (read(told[0], path, 256) != 256)
		exit(99);
	pid_t beside = child_joins(path, false);
	if (!alive)
		end_child(beside);
	if (write(tell[1], "x", 1) != 1)
		exit(99);
	waitpid(maker, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(told[i]);
		close(tell[i]);
	}
	if (!alive)
		return;
	ok(!access(path, F_OK), "the maker leaves its session to a loader that lives");
	is_int(session_gc(), 0, "as long as it does");
	end_child(beside);
	is_int(session_gc(), 1, "not longer");
}

/* The maker and a loader beside it leave at the same moment, with sessions elsewhere than where the loader's are. */
static void test_leave_together(int rounds)
{
	const char *was = getenv("EGPU_DIR");
	char here[256], elsewhere[300], path[256];
	int left = 0;
	snprintf(here, sizeof(here), "%s", was);
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", here);
	mkdir(elsewhere, 0700);
	for (int i = 0; i < rounds; i++) {
		int told[2], go[2];
		char c;
		if (pipe(told) || pipe(go))
			exit(99);
		setenv("EGPU_DIR", elsewhere, 1);
		pid_t maker = fork();
		if (!maker) {
			struct session *s;
			if (session_create(&s, NULL) || write(told[1], session_path(s), 256) != 256 || read(go[0], &c, 1) != 1)
				_exit(1);
			session_destroy(s);
			usleep(2000);
			_exit(0);
		}
		setenv("EGPU_DIR", here, 1);
		if (read(told[0], path, 256) != 256)
			exit(99);
		pid_t beside = fork();
		if (!beside) {
			struct session *s;
			if (session_open(path, &s, NULL) || session_enter(s, "beside", NULL) || write(told[1], "x", 1) != 1 || read(go[0], &c, 1) != 1)
				_exit(1);
			usleep((useconds_t)(i % 8) * 40);
			session_end_client(s);
			session_destroy(s);
			_exit(0);
		}
		if (read(told[0], &c, 1) != 1 || write(go[1], "xx", 2) != 2)
			exit(99);
		waitpid(maker, NULL, 0);
		waitpid(beside, NULL, 0);
		left += !access(path, F_OK);
		for (int k = 0; k < 2; k++) {
			close(told[k]);
			close(go[k]);
		}
	}
	rmdir(elsewhere);
	is_int(left, 0, "of %d sessions that maker and loader leave together none stays", rounds);
}

/* The maker's program has ended; another loader reads what its own maps have got. */
static void test_beside(void)
{
	char path[256];
	maker_ends(path, true);
	maker_ends(path, false);
	ok(access(path, F_OK) != 0, "and to none that is dead");
	test_leave_together(40);
}

static void make(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char made[400];
static void make(const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(made, sizeof(made), "%s/", fixture_root);
	va_start(ap, fmt);
	vsnprintf(made + n, sizeof(made) - (size_t)n, fmt, ap);
	va_end(ap);
	mkdir(made, 0700);
}

static void touch(const char *name, size_t size)
{
	char path[500];
	snprintf(path, sizeof(path), "%s/%s", made, name);
	int fd = open(path, O_CREAT | O_RDWR, 0600);
	if (ftruncate(fd, (off_t)size))
		exit(99);
	close(fd);
}

static void test_half_made(void)
{
	unsigned uid = (unsigned)geteuid();
	/* The process number is ours, the start time is not: its owner is long dead. */
	make("egpu-%u-%d-1", uid, (int)getpid());
	is_int(session_gc(), 1, "an empty directory of a dead loader");
	make("egpu-%u-%d-1", uid, (int)getpid());
	touch("session", 100);
	touch("map-0", 100);
	is_int(session_gc(), 1, "a session file that was never finished");
	make("egpu-%u-%d-1-3", uid, (int)getpid());
	touch("session", sizeof(struct session_file));
	is_int(session_gc(), 1, "a second session of a dead process");
	static const char *const others[] = { "egpu-", "egpu-x-1-1", "egpu-0-0-1", "egpu-1-2",
		"egpu-0-1-1-", "egpu-0-1-1x", "other", "egpu-99999999999999999999-1-1",
		"egpu-0-99999999999-1" };
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
		make("%s", others[i]);
		is_int(session_gc(), 0, "%s is no session", others[i]);
		rmdir(made);
	}
	/* A name that says another user, in a directory of ours. */
	make("egpu-%u-%d-1", uid + 1, (int)getpid());
	is_int(session_gc(), 0, "a directory whose owner is not the user in its name");
	rmdir(made);
	/* Links are not followed. */
	char target[400], link[400];
	make("target");
	strcpy(target, made);
	touch("precious", 10);
	snprintf(link, sizeof(link), "%s/egpu-%u-%d-1", fixture_root, uid, (int)getpid());
	is_int(symlink(target, link), 0, "a link in place of a session");
	is_int(session_gc(), 0, "is left alone");
	strcat(target, "/precious");
	ok(!access(target, F_OK), "with what it points to");
	unlink(link);
	unlink(target);
	rmdir(made);
}

/* Sessions are made and removed all the time while others collect: none may lose its directory. */
static void test_race(void)
{
	int bad = 0, status;
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			for (int n = 0; n < 300; n++)
				session_gc();
			_exit(0);
		}
	for (int i = 0; i < 2; i++)
		if (!fork()) {
			for (int n = 0; n < 100; n++) {
				struct session *s, *t;
				uint32_t id;
				if (session_create(&s, NULL) ||
					session_open(session_path(s), &t, NULL) ||
					session_add_prog(s, "x", 1, "p", EBPF_POINT_LOAD, false,
						&id, NULL) ||
					!fixture_exists(s, "prog-0.frag"))
					_exit(1);
				session_close(t);
				session_destroy(s);
			}
			_exit(0);
		}
	while (wait(&status) > 0)
		bad += status != 0;
	is_int(bad, 0, "collectors never take a live session");
}

int main(void)
{
	fixture_make();
	test_killed();
	test_beside();
	test_half_made();
	test_race();
	is_int(fixture_end(), 0, "nothing is left behind");
	return tap_done();
}
