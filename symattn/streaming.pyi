from symattn.attention.linear import Scanned as Scanned
from symattn.attention.linear import causal_linear_attention as causal_linear_attention
from symattn.attention.linear import causal_products as causal_products
from symattn.attention.linear import chunk_read_before as chunk_read_before
from symattn.attention.linear import delta_chunk as delta_chunk
from symattn.attention.linear import delta_step as delta_step
from symattn.attention.linear import delta_token as delta_token
from symattn.attention.linear import elu_plus_one as elu_plus_one
from symattn.attention.linear import empty_state as empty_state
from symattn.attention.linear import erasing_chunk as erasing_chunk
from symattn.attention.linear import erasing_token as erasing_token
from symattn.attention.linear import gated_chunk as gated_chunk
from symattn.attention.linear import gated_products as gated_products
from symattn.attention.linear import gated_step as gated_step
from symattn.attention.linear import linear_attention as linear_attention
from symattn.attention.linear import linear_state as linear_state
from symattn.attention.linear import positive_random as positive_random
from symattn.attention.linear import products_read_before as products_read_before
from symattn.attention.linear import relu as relu
from symattn.attention.linear import scan as scan
from symattn.attention.linear import step_read_before as step_read_before
from symattn.attention.streaming.cache import Growing as Growing
from symattn.attention.streaming.cache import Held as Held
from symattn.attention.streaming.cache import Paged as Paged
from symattn.attention.streaming.cache import Sliding as Sliding
from symattn.attention.streaming.cache import Static as Static
from symattn.attention.streaming.cache import append as append
from symattn.attention.streaming.cache import attend as attend
from symattn.attention.streaming.cache import beside as beside
from symattn.attention.streaming.cache import held as held
from symattn.attention.streaming.cache import prefill as prefill
from symattn.attention.streaming.states import PartialOutput as PartialOutput
from symattn.attention.streaming.states import SoftmaxState as SoftmaxState
from symattn.attention.streaming.states import finish as finish
from symattn.attention.streaming.states import join_splits as join_splits
from symattn.attention.streaming.states import lse as lse
from symattn.attention.streaming.states import merge as merge
from symattn.attention.streaming.states import merge_partial as merge_partial
from symattn.attention.streaming.states import online as online
from symattn.attention.streaming.states import partial_output as partial_output
from symattn.attention.streaming.states import split_keys as split_keys
from symattn.attention.streaming.states import tile_state as tile_state
from symattn.attention.streaming.states import tree as tree
from symattn.attention.streaming.tiled_runs import backward_by_tiles as backward_by_tiles
from symattn.attention.streaming.tiled_runs import row_products as row_products
from symattn.attention.streaming.tiled_runs import row_states as row_states
from symattn.attention.streaming.tiled_runs import (
    score_and_value_gradients as score_and_value_gradients,
)
from symattn.attention.streaming.tiled_runs import tile_gradients as tile_gradients
from symattn.attention.streaming.tiled_runs import tile_weights as tile_weights

__all__: list[str]
