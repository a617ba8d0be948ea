/* `info`: what a model is, and whether its files are whole. Headers are read, weights are not. */
#include "jobs/cmd_model.h"

#include "jobs/export.h"
#include "jobs/progress.h"
#include "src/safetensors.h"

#include <stdio.h>
#include <string.h>

struct files {
    size_t files, tensors;
    uint64_t bytes, of[DT_OTHER + 1];
};

static enum status look(const char *dir, struct files *f, struct err *e)
{
    struct safetensors *s;
    *f = (struct files){0};
    enum status rc = safetensors_open(&s, dir, false, e);
    if (rc) return rc;
    f->files = safetensors_files(s);
    f->tensors = safetensors_count(s);
    for (size_t i = 0; i < f->tensors; i++) {
        const struct tensor_info *t = safetensors_at(s, i);
        f->bytes += t->bytes;
        f->of[t->type] += t->bytes;
    }
    safetensors_close(s);
    return OK;
}

static void print_json(const struct cmd_model *m, const struct files *f)
{
    const struct config *c = &m->config;
    struct buf dir = {0};
    export_quote(&dir, m->dir, strlen(m->dir), NULL);
    printf("{\"model\":%s,\"sha256\":\"%s\",\"architecture\":\"%s\",\"files\":%zu,\"tensors\":%zu,"
           "\"bytes\":%llu,\"layers\":%u,\"kda_layers\":%u,\"mla_layers\":%u,\"moe_layers\":%u,"
           "\"hidden\":%u,\"vocab\":%u,\"experts\":%u,\"top_k\":%u,\"shared_experts\":%u,"
           "\"context\":%u,\"vision\":%s,\"expert_bytes\":%llu,\"state_bytes\":%llu,"
           "\"position_bytes\":%llu}\n",
           dir.data ? dir.data : "null", m->sha256, c->architecture, f->files, f->tensors,
           (unsigned long long)f->bytes, c->layers, config_layers_of(c, LAYER_KDA),
           config_layers_of(c, LAYER_MLA), config_moe_layers(c), c->hidden, c->vocab, c->experts,
           c->top_k, c->shared_experts, c->context, m->has_vision ? "true" : "false",
           (unsigned long long)m->sizes.expert_slot_bytes * m->sizes.expert_count,
           (unsigned long long)config_state_bytes(c), (unsigned long long)config_position_bytes(c));
    buf_free(&dir);
}

static void print_bytes(const char *name, uint64_t bytes, const char *note)
{
    char text[24];
    progress_bytes(text, sizeof text, (double)bytes);
    printf("%-18s%s%s%s\n", name, text, *note ? ", " : "", note);
}

static void print_text(const struct cmd_model *m, const struct files *f)
{
    const struct config *c = &m->config;
    char note[96];
    uint64_t layers = 0;
    for (uint32_t i = 0; i < c->layers; i++) layers += m->sizes.layer_bytes[i];
    printf("%-18s%s\n", "model", m->dir);
    printf("%-18s%s (%s)\n", "architecture", c->architecture, c->model_type);
    printf("%-18s%s\n", "identity", m->sha256);
    snprintf(note, sizeof note, "%zu tensors in %zu files, whole", f->tensors, f->files);
    print_bytes("size", f->bytes, note);
    printf("%-18s%u: %u KDA, %u MLA; %u with routed experts\n", "layers", c->layers,
           config_layers_of(c, LAYER_KDA), config_layers_of(c, LAYER_MLA), config_moe_layers(c));
    printf("%-18s%u, vocabulary %u, context %u\n", "width", c->hidden, c->vocab, c->context);
    snprintf(note, sizeof note, "%u a layer, %u a token, %u shared; %.2f MB each", c->experts,
             c->top_k, c->shared_experts, (double)m->sizes.expert_slot_bytes / 1e6);
    print_bytes("experts", m->sizes.expert_slot_bytes * m->sizes.expert_count, note);
    print_bytes("other layers", layers, "");
    print_bytes("embedding, head", m->sizes.global_bytes, "");
    snprintf(note, sizeof note, "and %llu bytes a token",
             (unsigned long long)config_position_bytes(c));
    print_bytes("a sequence", config_state_bytes(c), note);
    if (m->has_vision)
        printf("%-18sup to %u patches of %u x %u a picture\n", "vision",
               m->processor.in_patch_limit, m->processor.patch, m->processor.patch);
    else
        printf("%-18snone\n", "vision");
}

int cmd_info(const struct cmd_options *o)
{
    struct err e;
    struct cmd_model m;
    struct files f;
    enum status rc = cmd_model_begin(&m, o, &e);
    if (rc) return cmd_fail(&e);
    rc = look(m.dir, &f, &e);
    if (!rc) rc = plan_model_load(&m.sizes, &m.config, m.dir, &e);
    if (!rc && o->json) print_json(&m, &f);
    if (!rc && !o->json) print_text(&m, &f);
    cmd_model_close(&m);
    return rc ? cmd_fail(&e) : EXIT_DONE;
}
