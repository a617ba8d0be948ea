/* Signals that ask for an end. The first only counts: whoever computes looks between sweeps, and
 * everything is kept. The second ends the process where it is, even within a sweep of minutes; what
 * was stored stays, since a transaction that was cut off is rolled back by the next to open it. */
#include "jobs/cmd.h"

#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t first;

static void on_signal(int number)
{
    if (first) _exit(cmd_stop_exit());
    first = number;
}

void cmd_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &a, NULL);
}

int cmd_stop_wanted(void)
{
    return first != 0;
}

int cmd_stop_exit(void)
{
    return !first ? 0 : first == SIGINT ? EXIT_SIGINT : EXIT_SIGTERM;
}
