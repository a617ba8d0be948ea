/* Runs a command and tells its largest resident size: peak_rss LIMIT_MIB COMMAND... The last line
 * on standard error is "peak N kB"; exit 99 when that is over the limit, else the command's. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct rusage use;
    int status;
    if (argc < 3) return 2;
    pid_t pid = fork();
    if (pid < 0) return 2;
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    if (wait4(pid, &status, 0, &use) != pid) return 2;
    fprintf(stderr, "peak %ld kB\n", use.ru_maxrss);
    if (use.ru_maxrss > atol(argv[1]) * 1024) return 99;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
