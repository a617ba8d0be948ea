/* From the command's name to the command. */
#include "jobs/cmd.h"

#include "jobs/cmd_table.h"
#include "jobs/suggest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct command {
    enum cmd_bit bit;
    const char *name, *operands, *summary;
    int (*run)(const struct cmd_options *o);
} commands[] = {
#define X(bit, name, operands, summary) {bit, #name, operands, summary, cmd_##name},
    CMD_LIST(X)
#undef X
};
#define N_COMMANDS (sizeof commands / sizeof *commands)

static int unknown_command(const char *name)
{
    struct suggest s = {.word = name};
    for (size_t i = 0; i < N_COMMANDS; i++) suggest_offer(&s, commands[i].name);
    if (s.best) return cmd_usage("unknown command %s; did you mean %s?", name, s.best);
    return cmd_usage("unknown command %s; see nightshift --help", name);
}

static int run_command(const struct command *c, int argc, char **argv)
{
    struct cmd_options o;
    struct cmd_words words = {c->bit, c->name, c->operands, argc, argv};
    struct err e;
    bool help;
    enum status rc = cmd_parse(&o, &words, &help, &e);
    int code = EXIT_DONE;
    if (rc)
        code = cmd_fail(&e);
    else if (help)
        cmd_help_of(c->bit, c->name, c->operands, c->summary);
    else
        code = c->run(&o);
    cmd_options_free(&o);
    return code;
}

static int dispatch(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name) return cmd_usage("no command; see nightshift --help");
    if (!strcmp(name, "--version")) {
        printf("nightshift %s\n", NIGHTSHIFT_VERSION);
        return EXIT_DONE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        cmd_help();
        return EXIT_DONE;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return run_command(&commands[i], argc - 2, argv + 2);
    if (name[0] == '-')
        return cmd_usage("expected a command before %s; see nightshift --help", name);
    return unknown_command(name);
}

int cmd_main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    int code = dispatch(argc, argv);
    bool failed = ferror(stdout) != 0;
    if ((fflush(stdout) != 0 || failed) && errno != EPIPE) {
        fprintf(stderr, "nightshift: cannot write to standard output: %s\n", strerror(errno));
        return EXIT_STORAGE;
    }
    return code;
}
