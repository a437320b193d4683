"""ACO-R exactly as printed: every pair's [A_i | X | O_j], 3C channels at every cell, concatenated and convolved."""

import torch
import torch.nn.functional as F


def seeded(module, seed=0):
    """The module with weights drawn by a generator of its own: norms and the null object too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            spread = weight[0].numel() ** -0.5 if weight.ndim > 1 else 1.0
            weight.copy_(spread * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return module


def literal_features(grid, scene):
    """What `GridRelations` must equal: one clip after the other, the concatenation really made."""
    features = scene.actors.new_zeros(len(scene.actors), grid.dim)
    for clip, context in enumerate(scene.context):
        rows = (scene.actor_clip_index == clip).nonzero().squeeze(1)
        objects = scene.objects[scene.object_clip_index == clip]
        if len(objects) == 0:
            objects = grid.mixing.null_object.unsqueeze(0)
        if len(rows):
            found = literal_clip_features(grid, scene.actors[rows], context, objects)
            features = features.index_copy(0, rows, found)
    return features


def literal_clip_features(grid, actors, context, objects):
    """The relational features of N actors (N, C) among M objects (M, C) in a context (C, rows, cols)."""
    settings = grid.settings
    num_actors, num_objects = len(actors), len(objects)
    pair_shape = (num_actors, num_objects, *context.shape)
    F_ij = torch.cat(
        [
            actors[:, None, :, None, None].expand(pair_shape),
            context.expand(pair_shape),
            objects[None, :, :, None, None].expand(pair_shape),
        ],
        dim=2,
    ).flatten(0, 1)  # (N·M, 3C, rows, cols)
    maps = F.leaky_relu_(F.conv2d(F_ij, grid.mixing.convolution.weight), settings.slope)
    maps = F.conv2d(maps, grid.maps.convolution.weight, padding=settings.padding)
    maps = F.leaky_relu_(_normalised(maps, grid.maps.norm), settings.slope)
    if settings.is_downsampled:
        maps = F.max_pool2d(maps, 3, stride=2, padding=1)
    for block in grid.maps.blocks:
        maps = maps + _higher_order_relations(block, maps, settings, grid.training)
    H = maps.mean(dim=(2, 3)).unflatten(0, (num_actors, num_objects)).amax(dim=1)
    A = F.leaky_relu(actors @ grid.actor.linear.weight.T, settings.slope)
    return F.dropout(torch.cat([H, A], dim=1), settings.dropout, grid.training)


def _higher_order_relations(block, maps, settings, training):
    def convolved(x, layer):
        return F.conv2d(x, layer.weight, padding=settings.kernel_size // 2)

    query, key, value = (convolved(maps, layer) for layer in (block.query, block.key, block.value))
    likeness = torch.einsum("idyx,jdyx->ijyx", query, key) / settings.width**0.5
    seen = torch.einsum("ijyx,jdyx->idyx", likeness.softmax(dim=1), value)
    out = convolved(F.leaky_relu_(_normalised(seen, block.norm), settings.block_slope), block.out)
    return F.dropout(out, settings.block_dropout, training)


def _normalised(maps, norm):
    return F.group_norm(maps, 1, norm.weight, norm.bias)
