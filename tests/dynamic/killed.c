/* killed.c - runs a command and kills it at its Nth system call: a controller that dies at any step.
 *
 *	killed N COMMAND...
 *
 * 0: runs it to its end. The last line on standard error tells the number of calls, and where it ended. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	unsigned long at = argc > 2 ? strtoul(argv[1], NULL, 10) : 0, stops = 0;
	int status = 0, signal = 0;
	if (argc < 3)
		return 2;
	pid_t pid = fork();
	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_TRACESYSGOOD);
	/* Each call stops twice: at its entry, where it has not happened yet, and at its end. */
	while (!ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)signal) && waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
		signal = WSTOPSIG(status) == (SIGTRAP | 0x80) || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		if (WSTOPSIG(status) == (SIGTRAP | 0x80) && ++stops == 2 * at - 1)
			kill(pid, SIGKILL);
	}
	if (WIFSTOPPED(status))
		waitpid(pid, &status, 0);
	fprintf(stderr, "%lu calls, %s\n", (stops + 1) / 2, WIFSIGNALED(status) ? "killed" : "ended");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
