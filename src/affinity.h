/* Which experts a kind of prompt uses when it generates, learned while it does (design.md 4).
 *
 * Prompts are sorted into kinds by how their instruction begins: the mean of its tokens'
 * embeddings, the first ones counting most, and whether there is a picture. A kind is the nearest
 * one known, or a new one when none is near. For each kind it is counted which experts a row used;
 * from that follows how many experts more a sweep needs when a job of some kind joins those that
 * run. Only an estimate: it decides what runs when and never what comes out. One caller at a time.
 */
#ifndef NS_AFFINITY_H
#define NS_AFFINITY_H

#include "src/config.h"
#include "src/mem.h"
#include "src/quant.h"

#include <stdbool.h>

#define AFFINITY_KINDS 32

struct affinity;

/* embed: [vocab][hidden], borrowed. End with affinity_close. */
enum status affinity_open(struct affinity **out, struct mem *mem, const struct config *c,
                          const struct linear *embed, struct err *e);
void affinity_close(struct affinity *a);
/* Memory that it takes. */
uint64_t affinity_bytes(const struct config *c);

/* The kind of a prompt whose instruction begins with these tokens; below AFFINITY_KINDS. */
unsigned affinity_kind(struct affinity *a, const int32_t *ids, size_t n, bool picture);
/* A row of a job of this kind used these experts of a layer. */
void affinity_used(struct affinity *a, unsigned kind, unsigned layer, const uint32_t *experts,
                   size_t n);
/* extra[AFFINITY_KINDS]: experts that a sweep needs more when a job of each kind joins `running`
 * of each kind. */
void affinity_extra(struct affinity *a, const unsigned *running, double *extra);

/* What was learned of one kind as bytes, for a later run with the same model on the same kind of
 * machine. Its size is affinity_record_bytes. */
size_t affinity_record_bytes(const struct config *c);
size_t affinity_kinds(const struct affinity *a);
void affinity_write(const struct affinity *a, unsigned kind, void *record);
/* Adds a kind; false when there is no room or the record is not one of this model. */
bool affinity_read(struct affinity *a, const void *record, size_t bytes);
/* Rows learned from so far. */
uint64_t affinity_rows(const struct affinity *a);

#endif
