/* Signals that ask for an end. The handler only counts; whoever computes looks between sweeps.
 * After the second one the default action is back, so that a third ends the process at once. */
#include "jobs/cmd.h"

#include <signal.h>

static volatile sig_atomic_t count, first;

static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};

static void on_signal(int number)
{
    if (!first) first = number;
    if (++count < 2) return;
    for (int i = 0; i < 3; i++) signal(numbers[i], SIG_DFL);
}

void cmd_catch_signals(void)
{
    struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&a.sa_mask);
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &a, NULL);
}

int cmd_stop_wanted(void)
{
    return count < 2 ? count : 2;
}

int cmd_stop_exit(void)
{
    return !first ? 0 : first == SIGINT ? EXIT_SIGINT : EXIT_SIGTERM;
}
