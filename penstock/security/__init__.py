"""Who is there and what they may do: principals, SASL, certificates, broker proofs, tokens, ACLs and quotas"""
