/* Processes that egpu attach has to refuse, and one that traces:
 *
 *	odd map FILE...     has these files mapped, and waits
 *	odd strict FILE...  the same in strict seccomp mode
 *	odd trace PID       traces that process until it is killed
 *	odd zombie FILE...  has a child that has ended, whose number it prints
 *	odd vfork FILE...   has one that has not begun its program yet
 *	odd exec FILE...    begins itself again all the time, until its input ends; then it says how often
 *	odd headless FILE... its first thread ends, another waits
 *	odd thread FILE...  has a second thread, whose number it prints
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *wait_there(void *arg)
{
	*(volatile int *)arg = (int)syscall(SYS_gettid);
	for (;;)
		pause();
	return NULL;
}

static void until_input_ends(void)
{
	char c;
	while (read(0, &c, 1) > 0)
		;
}

/* The number of times goes along in the environment. */
static int again(char **argv)
{
	struct pollfd p = { .fd = 0, .events = POLLIN };
	const char *was = getenv("ODD_TIMES");
	char times[32];
	if (!was)
		printf("running\n");
	fflush(stdout);
	if (poll(&p, 1, 0) > 0) {
		printf("begun %s times\n", was);
		return 0;
	}
	snprintf(times, sizeof(times), "%d", was ? atoi(was) + 1 : 1);
	setenv("ODD_TIMES", times, 1);
	usleep(200);
	execv("/proc/self/exe", argv);
	return errno;
}

static void *wait_for_input(void *arg)
{
	until_input_ends();
	exit(0);
	return arg;
}

int main(int argc, char **argv)
{
	volatile int number = 0;
	pthread_t thread;
	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "trace")) {
		printf(ptrace(PTRACE_SEIZE, atoi(argv[2]), 0, 0) ? "cannot\n" : "running\n");
		fflush(stdout);
		pause();
	}
	for (int i = 2; i < argc; i++) {
		int fd = open(argv[i], O_RDONLY);
		if (fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			return 3;
		close(fd);
	}
	if (!strcmp(argv[1], "exec"))
		return again(argv);
	if (!strcmp(argv[1], "zombie") && !(number = fork()))
		return 0;
	if (!strcmp(argv[1], "zombie"))
		waitid(P_PID, (id_t)number, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	if (!strcmp(argv[1], "thread") && pthread_create(&thread, NULL, wait_there, (void *)&number))
		return 3;
	while (!strcmp(argv[1], "thread") && !number)
		usleep(1000);
	printf("running %d\n", number);
	fflush(stdout);
	if (!strcmp(argv[1], "vfork") && !vfork()) {
		until_input_ends();
		_exit(0);
	}
	if (!strcmp(argv[1], "headless") && !pthread_create(&thread, NULL, wait_for_input, NULL))
		pthread_exit(NULL);
	if (!strcmp(argv[1], "strict"))
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
	until_input_ends();
	return 0;
}
