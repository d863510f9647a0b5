/* Events between processes: records of one are waited for, queried and synchronised with in
 * another, in both directions; one whose process dies lets the others go on. */
#include "driver_test.h"

#include <signal.h>
#include <sys/wait.h>

static int to_child, from_child; /* in the parent; the child has the other ends */

static void put(int fd, const void *p, size_t n)
{
	if (write(fd, p, n) != (ssize_t)n)
		_exit(90);
}

static void get(int fd, void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = read(fd, (char *)p + at, n - at);
		if (r <= 0)
			_exit(91);
		at += (size_t)r;
	}
}

static char step(int fd)
{
	char c;
	get(fd, &c, 1);
	return c;
}

/* The parent's commands, a letter each. Every answer is a word. */
static void child(int in, int out)
{
	CUipcEventHandle h;
	CUevent theirs, own;
	CUstream s;
	volatile uint32_t *gate = NULL;
	uint32_t answer;
	test_open();
	CUdeviceptr p = device_word(0), q = device_word(0);
	get(in, &h, sizeof(h));
	answer = (uint32_t)cuIpcOpenEventHandle(&theirs, h);
	put(out, &answer, 4);
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	need(cuEventCreate(&own, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	need(cuIpcGetEventHandle(&h, own));
	put(out, &h, sizeof(h));
	for (;;) {
		void *params[] = { &q, &(uint32_t){ 1 } };
		switch (step(in)) {
		case 'q': /* query */
			answer = (uint32_t)cuEventQuery(theirs);
			break;
		case 'w': /* a stream waits, then adds */
			answer = (uint32_t)cuStreamWaitEvent(s, theirs, 0);
			need(launch(kernel("add"), 1, 1, s, params));
			break;
		case 'r': /* what the stream has added */
			answer = read_word(q);
			break;
		case 's':
			answer = (uint32_t)cuEventSynchronize(theirs);
			break;
		case 'S':
			answer = (uint32_t)cuStreamSynchronize(s);
			break;
		case 'g': /* records its own behind a kernel that waits */
			gate = gate_new();
			need(launch_gated(gate, p, 5, s));
			answer = (uint32_t)cuEventRecord(own, s);
			break;
		case 'o': /* opens the gate */
			gate_set(gate, 1);
			answer = 0;
			break;
		case 't': /* records the parent's event */
			answer = (uint32_t)cuEventRecord(theirs, s);
			break;
		case 'x':
			answer = (uint32_t)cuIpcGetEventHandle(&h, theirs);
			break;
		default:
			need(cuEventDestroy(theirs));
			_exit(0);
		}
		put(out, &answer, 4);
	}
}

static void ask(char c)
{
	put(to_child, &c, 1);
}

static uint32_t answer(void)
{
	uint32_t v;
	get(from_child, &v, 4);
	return v;
}

static uint32_t call(char c)
{
	ask(c);
	return answer();
}

static void handles(CUevent *mine, CUevent *theirs)
{
	CUipcEventHandle h, back;
	CUevent plain, e;
	need(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	is_int(cuIpcGetEventHandle(&h, plain), CUDA_ERROR_INVALID_VALUE,
		"an event has to be made for it");
	need(cuEventDestroy(plain));
	need(cuEventCreate(mine, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	need(cuIpcGetEventHandle(&h, *mine));
	is_int(cuIpcOpenEventHandle(&e, h), CUDA_ERROR_INVALID_CONTEXT, "not in the same process");
	put(to_child, &h, sizeof(h));
	is_int(answer(), 0, "another process opens it");
	get(from_child, &back, sizeof(back));
	need(cuIpcOpenEventHandle(theirs, back));
	memset(&h, 0x5a, sizeof(h));
	is_int(cuIpcOpenEventHandle(&e, h), CUDA_ERROR_INVALID_VALUE, "an invented handle");
	((uint64_t *)&back)[3] ^= 1;
	is_int(cuIpcOpenEventHandle(&e, back), CUDA_ERROR_INVALID_VALUE, "a stale handle");
	is_int(call('x'), CUDA_ERROR_INVALID_VALUE, "what was opened is not given on");
	float ms;
	is_int(cuEventElapsedTime(&ms, *mine, *theirs), CUDA_ERROR_INVALID_HANDLE, "no times");
}

/* The parent records behind a kernel that waits; the child waits for it. */
static void forward(CUevent mine, CUstream s)
{
	volatile uint32_t *gate = gate_new();
	CUdeviceptr p = device_word(0);
	is_int(call('q'), CUDA_SUCCESS, "never recorded: reached");
	need(launch_gated(gate, p, 1, s));
	need(cuEventRecord(mine, s));
	is_int(call('q'), CUDA_ERROR_NOT_READY, "recorded here, not reached there");
	is_int(call('w'), 0, "a stream of the other process waits");
	sleep_ms(20);
	is_int(call('r'), 0, "and does nothing yet");
	ask('s');
	gate_set(gate, 1);
	is_int(answer(), 0, "a synchronising call ends");
	is_int(call('S'), 0, "and the stream goes on");
	is_int(call('r'), 1, "with what follows");
	is_int(call('q'), CUDA_SUCCESS, "reached in both");
}

static void backward(CUevent mine, CUevent theirs, CUstream s)
{
	CUdeviceptr p = device_word(0);
	void *params[] = { &p, &(uint32_t){ 1 } };
	is_int(call('g'), 0, "the other process records its event");
	is_int(cuEventQuery(theirs), CUDA_ERROR_NOT_READY, "not reached here either");
	need(cuStreamWaitEvent(s, theirs, 0));
	need(launch(kernel("add"), 1, 1, s, params));
	is_int(cuStreamQuery(s), CUDA_ERROR_NOT_READY, "a stream waits");
	is_int(call('t'), 0, "it records the event of this one, too");
	is_int(cuEventQuery(mine), CUDA_ERROR_NOT_READY, "which counts here");
	call('o');
	is_int(cuEventSynchronize(mine), 0, "and is reached");
	is_int(cuStreamSynchronize(s), 0, "as is the other");
	is_int(read_word(p), 1, "with what follows");
}

static void dies(CUevent theirs, CUstream s, pid_t pid)
{
	int status;
	is_int(call('g'), 0, "the other process records");
	is_int(cuEventQuery(theirs), CUDA_ERROR_NOT_READY, "and has not come to it");
	need(cuStreamWaitEvent(s, theirs, 0));
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	is_int(cuStreamSynchronize(s), 0, "it dies: nobody waits for ever");
	is_int(cuEventSynchronize(theirs), 0, "here neither");
	need(cuEventDestroy(theirs));
}

int main(void)
{
	int to[2], from[2];
	CUevent mine, theirs;
	CUstream s;
	if (pipe(to) || pipe(from))
		return 1;
	fflush(stdout);
	pid_t pid = fork(); /* before this process has a driver */
	if (!pid) {
		close(to[1]);
		child(to[0], from[1]);
	}
	to_child = to[1];
	from_child = from[0];
	close(from[1]);
	test_open();
	need(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	handles(&mine, &theirs);
	forward(mine, s);
	backward(mine, theirs, s);
	dies(theirs, s, pid);
	need(cuEventDestroy(mine));
	return tap_done();
}
