/* The program: everything is in jobs/cmd.c, where tests can reach it. */
#include "jobs/cmd.h"

int main(int argc, char **argv)
{
    return cmd_main(argc, argv);
}
