/* moving_names.h: put before everything else where files of driver/ref that
 * move elements (driver/ref/moving.def) are compiled for an instruction set:
 * what they define gets a name of its own. TILE_ISA is given on the command
 * line. */
#ifndef CPU_MOVING_NAMES_H
#define CPU_MOVING_NAMES_H

#define MOVING_PASTE_(name, isa) name##_##isa
#define MOVING_PASTE(name, isa)  MOVING_PASTE_(name, isa)
#define MOVING(name)             MOVING_PASTE(name, TILE_ISA)

#define ref_as_strided_scatter       MOVING(ref_as_strided_scatter)
#define ref_box_add                  MOVING(ref_box_add)
#define ref_box_make                 MOVING(ref_box_make)
#define ref_box_move                 MOVING(ref_box_move)
#define ref_box_move_parts           MOVING(ref_box_move_parts)
#define ref_constant_pad_nd          MOVING(ref_constant_pad_nd)
#define ref_diagonal_scatter         MOVING(ref_diagonal_scatter)
#define ref_embedding                MOVING(ref_embedding)
#define ref_embedding_dense_backward MOVING(ref_embedding_dense_backward)
#define ref_expand                   MOVING(ref_expand)
#define ref_fill                     MOVING(ref_fill)
#define ref_flip                     MOVING(ref_flip)
#define ref_gather                   MOVING(ref_gather)
#define ref_gather_along             MOVING(ref_gather_along)
#define ref_index                    MOVING(ref_index)
#define ref_index_add                MOVING(ref_index_add)
#define ref_index_copy               MOVING(ref_index_copy)
#define ref_index_fill               MOVING(ref_index_fill)
#define ref_index_put                MOVING(ref_index_put)
#define ref_index_put_size           MOVING(ref_index_put_size)
#define ref_index_select             MOVING(ref_index_select)
#define ref_index_size               MOVING(ref_index_size)
#define ref_move                     MOVING(ref_move)
#define ref_reflection_pad           MOVING(ref_reflection_pad)
#define ref_replication_pad          MOVING(ref_replication_pad)
#define ref_scatter_add              MOVING(ref_scatter_add)
#define ref_scatter_add_size         MOVING(ref_scatter_add_size)
#define ref_scatter_reduce           MOVING(ref_scatter_reduce)
#define ref_scatter_reduce_size      MOVING(ref_scatter_reduce_size)
#define ref_scatter_src              MOVING(ref_scatter_src)
#define ref_scatter_value            MOVING(ref_scatter_value)
#define ref_select_scatter           MOVING(ref_select_scatter)
#define ref_slice                    MOVING(ref_slice)
#define ref_slice_scatter            MOVING(ref_slice_scatter)
#define ref_start                    MOVING(ref_start)
#define ref_tril                     MOVING(ref_tril)
#define ref_triu                     MOVING(ref_triu)

#endif
